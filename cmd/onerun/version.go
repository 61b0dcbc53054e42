package main

import "runtime/debug"

// version returns the version of the module, and of the source that it was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "onerun (unknown version)"
	}
	text := "onerun " + info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			text += " " + s.Value
		}
	}
	return text + ", " + info.GoVersion
}
