package redistest_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

func TestUse_startsAnotherProgram(t *testing.T) {
	usual := redistest.ProgramBuild(t)
	require.NotEmpty(t, usual.Version)
	dir := t.TempDir()
	marker, program := filepath.Join(dir, "started"), filepath.Join(dir, "other-server")
	script := "#!/bin/sh\n" +
		`case "$1" in --version) echo "Other server v=7.9.1 sha=00000000:0"; exit; esac` + "\n" +
		"touch " + marker + "\n" +
		`exec redis-server "$@"` + "\n"
	require.NoError(t, os.WriteFile(program, []byte(script), 0o700))
	t.Run("inner", func(t *testing.T) {
		redistest.Use(t, program)
		require.Equal(t, redistest.Build{Name: "Other", Version: "7.9.1"}, redistest.ProgramBuild(t))
		require.NoError(t, redistest.Start(t).Client(t).Ping(ctx).Err())
		require.FileExists(t, marker)
	})
	require.Equal(t, usual, redistest.ProgramBuild(t))
}
