package main

import (
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

// The version says from which source and by which Go the program was built.
func TestVersion_saysCommitAndGo(t *testing.T) {
	const commit = "1a584760b3a1f2c0d5e6f708192a3b4c5d6e7f80"
	for want, settings := range map[string][]debug.BuildSetting{
		"onerun v0.1.0, go1.26.8":                                   {{Key: "GOOS", Value: "linux"}},
		"onerun v0.1.0, commit " + commit + ", go1.26.8":            {{Key: "vcs.revision", Value: commit}, {Key: "vcs.modified", Value: "false"}},
		"onerun v0.1.0, commit " + commit + " (modified), go1.26.8": {{Key: "vcs.revision", Value: commit}, {Key: "vcs.modified", Value: "true"}},
	} {
		info := &debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Version: "v0.1.0"}, Settings: settings}
		require.Equal(t, want, versionOf(info))
	}
	require.Regexp(t, `^onerun .*, `+runtime.Version()+`$`, version())
}
