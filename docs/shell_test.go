package docs_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// docBlock matches a code block with its language.
var docBlock = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```")

// The port of every server that a page starts, and what the pages call it.
var docPorts = []string{"6379", "8080"}

// Someone who types what the README or Getting started say gets the output that they show. The
// blocks of a page run in their order in one shell. A Go program is saved as main.go first. The
// program git has this checkout in place of a clone, and the program go finds this module in it.
func TestLong_shellBlocksOfTheDocsRun(t *testing.T) {
	leftout.IfShort(t) // it compiles and runs two services and the examples
	redistest.Require(t)
	// The reader's module gets the lowest versions, which the workspace does not need.
	download := exec.CommandContext(t.Context(), "go", "mod", "download")
	download.Env = append(os.Environ(), "GOWORK=off")
	out, err := download.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, page := range []string{"README.md", "docs/getting-started.md"} {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			runPage(t, page)
		})
	}
}

func runPage(t *testing.T, page string) {
	t.Helper()
	ports := strings.NewReplacer(freePorts(t, docPorts)...)
	blocks := docBlock.FindAllStringSubmatch(readPage(t, page), -1)
	var script strings.Builder
	var shown []string // what the page shows as the output of each block
	script.WriteString("set -eu\nexec 2>&1\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n")
	for i, block := range blocks {
		switch language, text := block[1], ports.Replace(block[2]); {
		case language == "go" && strings.HasPrefix(text, "package main\n"):
			fmt.Fprintf(&script, "cat > main.go <<'END OF FILE'\n%sEND OF FILE\n", text)
		case language == "sh":
			fmt.Fprintf(&script, "%s\necho '=== end of block %d'\n", text, len(shown))
			want := ""
			if i+1 < len(blocks) && blocks[i+1][1] == "text" {
				want = ports.Replace(blocks[i+1][2])
			}
			shown = append(shown, want)
		}
	}
	require.NotEmpty(t, shown)

	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script.String())
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+stubs(t)+":"+os.Getenv("PATH"), "GOPROXY=off",
		"DOC_OUTPUT="+filepath.Join(dir, "output"), "DOC_PORT="+ports.Replace("8080"))
	output, err := os.Create(filepath.Join(dir, "output"))
	require.NoError(t, err)
	defer output.Close()
	cmd.Stdout, cmd.Stderr = output, output
	t.Cleanup(func() { shutDown(t, ports.Replace("6379")) })
	err = cmd.Run()
	out, _ := os.ReadFile(output.Name())
	require.NoError(t, err, "%s: %s", page, out)
	// A shell reports a job that was killed at some time later.
	rest := regexp.MustCompile(`(?m)^.* (Killed|Terminated) .*\n`).ReplaceAllString(string(out), "")
	for i, want := range shown {
		got, after, ok := strings.Cut(rest, fmt.Sprintf("=== end of block %d\n", i))
		require.True(t, ok, "%s: block %d: %s", page, i, rest)
		if want != "" {
			require.Regexp(t, outputPattern(want), got, "%s: the output of block %d", page, i)
		}
		rest = after
	}
}

// foundCount matches a count in the output of an example.
var foundCount = regexp.MustCompile(`(promised +\d+ +found|kept out:) +\d+`)

// outputPattern matches an output. "…" stands for text that differs from run to run. Counts that an
// example has found differ, too.
func outputPattern(shown string) string {
	parts := strings.Split(strings.TrimSpace(shown), "…")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return `(?s)` + foundCount.ReplaceAllString(strings.Join(parts, `[^\n]*`), `$1 +\d+`)
}

// freePorts returns pairs of a port of the documentation and a free one.
func freePorts(t *testing.T, named []string) (pairs []string) {
	t.Helper()
	for _, port := range named {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		_, free, err := net.SplitHostPort(l.Addr().String())
		require.NoError(t, err)
		require.NoError(t, l.Close())
		pairs = append(pairs, port, free)
	}
	return pairs
}

// stubs returns a directory with programs that take the place of the reader's: a git that clones
// this checkout, a go that finds this module without a registry, and a sleep that lasts until the
// program in the background is ready, however slow the machine is. It is ready when it has printed
// something in this block, or listens. The go succeeds if a demo shows the damage, as bash -e would
// end there.
func stubs(t *testing.T) string {
	t.Helper()
	root, err := os.Getwd()
	require.NoError(t, err)
	gobin, err := exec.LookPath("go")
	require.NoError(t, err)
	git, err := exec.LookPath("git") // go build asks it for the commit
	require.NoError(t, err)
	dir := t.TempDir()
	for name, script := range map[string]string{
		"git": fmt.Sprintf("#!/bin/sh\n[ \"$1\" != clone ] || exec ln -s %q onerun\n"+
			"exec %q \"$@\"\n", root, git),
		"go": fmt.Sprintf("#!/bin/sh\n%q \"$@\" || case \"$*\" in *-guard=false) ;; *) exit 1 ;; esac\n"+
			"[ \"$1 $2\" != 'mod init' ] || { %q mod edit -require %s@v0.0.0 -replace %s=%s && cp %q go.sum; }\n",
			gobin, gobin, module, module, root, filepath.Join(root, "go.sum")),
		"sleep": "#!/bin/bash\nfor i in {1..1200}; do\n" +
			"\ttail -n 1 \"$DOC_OUTPUT\" | grep -qv '^===' && exit\n" +
			"\t(: </dev/tcp/127.0.0.1/$DOC_PORT) 2>/dev/null && exit\n" +
			"\t/bin/sleep 0.05\ndone\nexit 1\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(script), 0o700))
	}
	return dir
}

// shutDown ends the server that a page has started, if it runs still.
func shutDown(t *testing.T, port string) {
	t.Helper()
	_ = exec.CommandContext(context.Background(), "redis-cli", "-p", port, "shutdown", "nosave").Run()
}

// A test that cannot fail shows nothing.
func TestShell_outputPatternForgivesOnlyWhatDiffers(t *testing.T) {
	t.Parallel()
	pattern := outputPattern("coupons given away   promised 100   found 1896   WRONG\nfences kept out: 0\n")
	require.Regexp(t, pattern, "coupons given away   promised 100   found  131   WRONG\nfences kept out: 12\n")
	for _, other := range []string{
		"coupons given away   promised 100   found  131   ok\nfences kept out: 0\n",
		"coupons given away   promised 101   found  131   WRONG\nfences kept out: 0\n",
		"coupons given away   promised 100   found  131   WRONG\n",
	} {
		require.NotRegexp(t, pattern, other)
	}
}
