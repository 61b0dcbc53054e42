package gobuild_test

import (
	"debug/buildinfo"
	"path/filepath"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/gobuild"
)

func TestProgram_isBuiltAsTheTestIs(t *testing.T) {
	program := filepath.Join(t.TempDir(), "hello")
	require.NoError(t, gobuild.Program("testdata/hello", program))
	ours, ok := debug.ReadBuildInfo()
	require.True(t, ok)
	its, err := buildinfo.ReadFile(program)
	require.NoError(t, err)
	for _, key := range []string{"-race", "-tags"} {
		require.Equal(t, setting(ours, key), setting(its, key), key)
	}
}

func TestProgram_saysWhatDoesNotCompile(t *testing.T) {
	err := gobuild.Program("testdata/broken", t.TempDir())
	require.ErrorContains(t, err, "testdata/broken")
	require.ErrorContains(t, err, "undefined: nothing")
}

func setting(info *debug.BuildInfo, key string) string {
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}
