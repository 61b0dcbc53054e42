//go:build release

package main_test

import (
	"archive/zip"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	library = "github.com/seed-1795987d/onerun"
	release = "v0.1.0"
)

// After a release as docs/development.md describes it, go install installs the command. Until then
// it refuses: go.mod has a replace directive, because no version of the library can be required.
func TestRelease_goInstallWorks(t *testing.T) {
	proxy := t.TempDir()
	publish(t, proxy, library, "../..", read(t, "../../go.mod"))
	publish(t, proxy, library+"/backend/etcd", "../../backend/etcd", released(t, "../../backend/etcd/go.mod", library))
	publish(t, proxy, library+"/cmd/onerun", ".", released(t, "go.mod", library, library+"/backend/etcd"))

	bin := t.TempDir()
	cache := strings.TrimSpace(goCommand(t, nil, "env", "GOMODCACHE"))
	env := []string{
		"GOPROXY=file://" + proxy + ",file://" + filepath.Join(cache, "cache", "download"),
		"GONOSUMDB=*", "GOFLAGS=-modcacherw -trimpath", "GOMODCACHE=" + t.TempDir(), "GOBIN=" + bin, "GOWORK=off",
	}
	goCommand(t, env, "install", library+"/cmd/onerun@latest")
	out, err := exec.CommandContext(t.Context(), filepath.Join(bin, "onerun"), "--version").Output()
	require.NoError(t, err)
	require.Contains(t, string(out), "onerun "+release)
}

// released returns a go.mod that requires the released modules, and replaces none.
func released(t *testing.T, name string, modules ...string) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "go.mod")
	require.NoError(t, os.WriteFile(file, read(t, name), 0o600))
	for _, module := range modules {
		goCommand(t, nil, "mod", "edit", "-dropreplace="+module, "-require="+module+"@"+release, file)
	}
	return read(t, file)
}

// Only run needs a Unix.
func TestRelease_buildsForWindows(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", os.DevNull, ".")
	cmd.Env = append(os.Environ(), "GOOS=windows", "GOARCH=amd64", "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func goCommand(t *testing.T, env []string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir, cmd.Env = t.TempDir(), append(os.Environ(), env...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	require.NoError(t, err, "go %v: %s", args, &errs)
	return string(out)
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	return text
}

// publish puts a module, with a go.mod, in a folder that serves as a module proxy.
func publish(t *testing.T, proxy, module, dir string, gomod []byte) {
	t.Helper()
	at := filepath.Join(proxy, filepath.FromSlash(module), "@v")
	require.NoError(t, os.MkdirAll(at, 0o700))
	for name, text := range map[string]string{
		"list":            release + "\n",
		release + ".info": fmt.Sprintf("{%q: %q}", "Version", release),
		release + ".mod":  string(gomod),
	} {
		require.NoError(t, os.WriteFile(filepath.Join(at, name), []byte(text), 0o600))
	}
	archive, err := os.Create(filepath.Join(at, release+".zip"))
	require.NoError(t, err)
	defer archive.Close()
	w := zip.NewWriter(archive)
	for _, name := range filesOf(t, dir) {
		text := gomod
		if name != "go.mod" {
			text = read(t, filepath.Join(dir, name))
		}
		to, err := w.Create(module + "@" + release + "/" + name)
		require.NoError(t, err)
		_, err = to.Write(text)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
}

// filesOf returns the files of the module in a folder, without those of nested modules.
func filesOf(t *testing.T, dir string) []string {
	t.Helper()
	git := exec.CommandContext(t.Context(), "git", "ls-files", "-co", "--exclude-standard")
	git.Dir = dir
	out, err := git.Output()
	require.NoError(t, err)
	all := strings.Fields(string(out))
	var nested []string
	for _, name := range all {
		if folder, ok := strings.CutSuffix(name, "/go.mod"); ok {
			nested = append(nested, folder+"/")
		}
	}
	return slices.DeleteFunc(all, func(name string) bool {
		return slices.ContainsFunc(nested, func(folder string) bool { return strings.HasPrefix(name, folder) })
	})
}
