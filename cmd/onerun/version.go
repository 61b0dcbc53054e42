package main

import "runtime/debug"

// version returns the version of the module, and of the source that it was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "onerun (unknown version)"
	}
	return versionOf(info)
}

func versionOf(info *debug.BuildInfo) string {
	text := "onerun " + info.Main.Version
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			text += ", commit " + s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			text += " (modified)"
		}
	}
	return text + ", " + info.GoVersion
}
