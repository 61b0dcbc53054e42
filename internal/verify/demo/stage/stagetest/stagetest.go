// Package stagetest runs an example from its test, as a process of its own: the test binary is the
// program.
package stagetest

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/processtest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	"github.com/seed-1795987d/onerun/internal/verify/demo/stage"
)

// programEnv makes the test binary the program. Its child processes inherit it.
const programEnv = "ONERUN_EXAMPLE_PROGRAM"

// patience is how long a program may take.
const patience = 3 * time.Minute

// Main is TestMain for a program whose main function is main.
func Main(m *testing.M, main func()) {
	if os.Getenv(programEnv) != "" {
		main()
		os.Exit(0)
	}
	redistest.AtOnce(4) // programs wait for each other's clocks and leases
	os.Exit(m.Run())
}

// A Program is a run of the program.
type Program struct {
	t       testing.TB
	cmd     *exec.Cmd
	process *processtest.Process
	out     *output
}

// Start starts the program. It is killed when the test ends, if it still runs.
func Start(t testing.TB, args ...string) *Program {
	t.Helper()
	p := &Program{t: t, cmd: exec.Command(os.Args[0], args...), out: &output{}}
	// where it is removed if the program is killed
	p.cmd.Env = append(os.Environ(), programEnv+"=1", "TMPDIR="+t.TempDir())
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	var err error
	p.process, err = processtest.Start(p.cmd)
	require.NoError(t, err)
	t.Cleanup(func() {
		p.process.Kill()
		if t.Failed() {
			t.Logf("%s printed:\n%s", p, p.out)
		}
	})
	return p
}

func (p *Program) String() string {
	return strings.Join(append([]string{"the program"}, p.cmd.Args[1:]...), " ")
}

// Run runs the program to its end, and returns its exit code and what it printed.
func Run(t testing.TB, args ...string) (code int, printed string) {
	t.Helper()
	p := Start(t, args...)
	return p.Wait(), p.out.String()
}

// Printed returns what the program has printed so far.
func (p *Program) Printed() string { return p.out.String() }

// Await returns when the program has printed text.
func (p *Program) Await(text string) {
	p.t.Helper()
	require.Eventually(p.t, func() bool { return strings.Contains(p.out.String(), text) },
		patience, 5*time.Millisecond, "%s never printed %q", p, text)
}

// Find returns what the group in the pattern matches, when the program has printed it.
func (p *Program) Find(pattern string) (found string) {
	p.t.Helper()
	group := regexp.MustCompile(pattern)
	require.Eventually(p.t, func() bool {
		match := group.FindStringSubmatch(p.out.String())
		if match != nil {
			found = match[1]
		}
		return match != nil
	}, patience, 5*time.Millisecond, "%s never printed %s", p, pattern)
	return found
}

// AwaitPage returns when a view of the page for operators (-ui) has all of the texts.
func (p *Program) AwaitPage(view string, texts ...string) {
	p.t.Helper()
	url := p.Find(`page for operators: (http://127\.0\.0\.1:\d+)/`) + view
	var shown string
	require.Eventually(p.t, func() bool {
		answer, err := http.Get(url)
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		shown = string(body)
		misses := func(text string) bool { return !strings.Contains(shown, text) }
		ok := err == nil && answer.StatusCode == http.StatusOK
		return ok && !slices.ContainsFunc(texts, misses)
	}, patience, 5*time.Millisecond, "%s never showed %q at %s", p, texts, view)
}

// Signal sends the signal to the program itself, and not to its child processes.
func (p *Program) Signal(s os.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.process.Signal(s))
}

// Wait returns the exit code when the program has ended and all of its child processes, too: they
// share its standard error, and it takes the last of them for that to end.
func (p *Program) Wait() int {
	p.t.Helper()
	select {
	case <-p.process.Done(): // how it ended is in ProcessState
	case <-time.After(patience):
		p.t.Fatalf("%s, or a child process of it, has not ended", p)
	}
	return p.cmd.ProcessState.ExitCode()
}

// OnOneBackend runs the test on single, on a real server.
func OnOneBackend(t *testing.T, test func(t *testing.T, args ...string)) {
	t.Parallel()
	test(t, "-backend", "single", "-redis", redistest.Start(t).Addr())
}

// OnEachBackend runs the test on each backend, on embedded servers and on real ones. The args say
// which.
func OnEachBackend(t *testing.T, test func(t *testing.T, args ...string)) {
	t.Parallel()
	for backend, servers := range map[string]int{"single": 1, "reentrant": 1, "redlock": 5} {
		t.Run(backend+" on embedded Redis", func(t *testing.T) {
			t.Parallel()
			test(t, "-backend", backend)
		})
		t.Run(backend+" on real Redis", func(t *testing.T) {
			t.Parallel()
			test(t, "-backend", backend, "-redis", Addresses(redistest.StartN(t, servers)))
		})
	}
}

// Addresses returns the servers' addresses for -redis.
func Addresses(servers []*redistest.Server) string {
	var addrs []string
	for _, s := range servers {
		addrs = append(addrs, s.Addr())
	}
	return strings.Join(addrs, ",")
}

// Database returns a file for -db, and a function that opens the database in it once the program
// has ended.
func Database(t testing.TB) (file string, open func() *stage.Database) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "kept.db")
	return file, func() *stage.Database {
		t.Helper()
		require.FileExists(t, file)
		return stage.OpenDatabase(file)
	}
}

// output is a buffer that can be read while it is written to.
type output struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

var _ io.Writer = (*output)(nil)

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buffer.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buffer.String()
}
