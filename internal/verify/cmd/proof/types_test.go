package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTypes_wrongOnOnePlatformOrInATest(t *testing.T) {
	t.Chdir(t.TempDir())
	write := func(name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}
	write("go.mod", "module example.com/m\n\ngo 1.26\n")
	write("low/low.go", "package low\n\nfunc Get() int { return 1 }\n")
	write("all.go", "package m\n\nimport \"example.com/m/low\"\n\nvar A int = low.Get()\n")
	write("a_windows.go", "package m\n\nimport \"syscall\"\n\nfunc stop() { _ = syscall.Kill(1, 9) }\n")
	write("all_test.go", "package m\n\nimport \"testing\"\n\nfunc TestA(*testing.T) { _ = A }\n")
	write("outer_test.go", "package m_test\n\nimport (\n\t\"testing\"\n\n\t\"example.com/m\"\n)\n\nfunc TestB(*testing.T) { _ = m.A }\n")
	check := func(system string) error {
		return checkTypes(t.Context(), ".", []string{"GOWORK=off", "GOARCH=arm64", "GOOS=" + system}, "-test", "./...")
	}
	require.NoError(t, check("darwin"))
	require.ErrorContains(t, check("windows"), "undefined: syscall.Kill")
	write("low/low.go", "package low\n\nfunc Get() string { return \"\" }\n")
	require.ErrorContains(t, check("darwin"), "cannot use low.Get()")
	write("all.go", "package m\n\nvar A = 1\n")
	write("outer_test.go", "package m_test\n\nimport \"example.com/m\"\n\nvar _ string = m.A\n")
	require.ErrorContains(t, check("darwin"), "outer_test.go:5:16: cannot use m.A")
}
