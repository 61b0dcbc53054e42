package main_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// Shell commands that run until they are killed, or until the file "go" exists. They fork seldom,
// because several tests run at a time.
const (
	forever = `while :; do sleep 0.05; done`
	untilGo = `while ! [ -e go ]; do sleep 0.05; done`
	// ticking appends instants to the file "ticks". Renaming a file over another can wait for the
	// disk, which other tests keep busy.
	ticking = `while :; do date +%s%N >>ticks; sleep 0.05; done`
)

// program is the command, built once for all tests.
var program string

func TestMain(m *testing.M) {
	if name := os.Getenv(counterEnv); name != "" {
		countSignals(name)
		return
	}
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	// Under nohup or in the background of a shell, signals are ignored, also by all programs that
	// are started here, unless somebody listens for them.
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
	dir, err := os.MkdirTemp("", "onerun")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "onerun")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
		return 1
	}
	redistest.AtOnce(5) // they wait for leases to end
	return m.Run()
}

// A site is a server, and a folder for what the commands write.
type site struct {
	t      *testing.T
	server *redistest.Server
	client *redis.Client
	dir    string
}

func newSite(t *testing.T) *site {
	t.Helper()
	t.Parallel()
	server := redistest.Start(t)
	return &site{t: t, server: server, client: server.Client(t), dir: t.TempDir()}
}

// command returns onerun with arguments, in the folder of the site. It has no terminal, also if the
// test has one.
func (s *site) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(s.t.Context(), program, args...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "ONERUN_REDIS=redis://"+s.server.Addr())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// An execution is an onerun that has been started.
type execution struct {
	t    *testing.T
	cmd  *exec.Cmd
	out  *buffer
	errs *buffer
	once sync.Once
	code int
}

// start starts onerun. It is killed when the test ends.
func (s *site) start(args ...string) *execution { return execute(s.t, s.command(args...)) }

func execute(t *testing.T, cmd *exec.Cmd) *execution {
	t.Helper()
	e := &execution{t: t, cmd: cmd, out: &buffer{}, errs: &buffer{}}
	cmd.WaitDelay = time.Second // a process that has outlived onerun has its streams
	if cmd.Stdout == nil {
		cmd.Stdout = e.out
	}
	if cmd.Stderr == nil {
		cmd.Stderr = e.errs
	}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		e.wait()
		if t.Failed() {
			t.Logf("%v wrote: %s", cmd.Args[1:], e.errs)
		}
	})
	return e
}

// wait returns the exit code.
func (e *execution) wait() int {
	e.once.Do(func() {
		err := e.cmd.Wait()
		e.code = e.cmd.ProcessState.ExitCode()
		var exited *exec.ExitError
		if err != nil && !errors.As(err, &exited) && !errors.Is(err, exec.ErrWaitDelay) {
			e.t.Errorf("wait: %v", err)
		}
	})
	return e.code
}

// run runs onerun to its end.
func (s *site) run(args ...string) (code int, out, errs string) {
	s.t.Helper()
	e := s.start(args...)
	code = e.wait()
	return code, e.out.String(), e.errs.String()
}

func (e *execution) signal(sig syscall.Signal) {
	e.t.Helper()
	require.NoError(e.t, e.cmd.Process.Signal(sig))
}

// path returns the path of a file of the site.
func (s *site) path(name string) string { return filepath.Join(s.dir, name) }

// read returns the contents of a file of the site, or "".
func (s *site) read(name string) string {
	text, _ := os.ReadFile(s.path(name))
	return string(text)
}

// written waits until a file of the site has a line, and returns the first.
func (s *site) written(name string) string {
	s.t.Helper()
	var line string
	s.eventually(func() bool {
		var whole bool
		line, _, whole = strings.Cut(s.read(name), "\n")
		return whole
	}, "nothing was written to "+name)
	return line
}

// pid waits for a file with the ID of a process.
func (s *site) pid(name string) int {
	s.t.Helper()
	pid, err := strconv.Atoi(s.written(name))
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) }) // it should be dead
	return pid
}

func (s *site) eventually(f func() bool, message string) {
	s.t.Helper()
	require.Eventually(s.t, f, 30*time.Second, 5*time.Millisecond, message)
}

// alive reports whether a process exists and has not exited.
func alive(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	rest := text[bytes.LastIndexByte(text, ')')+2:]
	return rest[0] != 'Z' && rest[0] != 'X'
}

// keeper returns the only child of onerun.
func (e *execution) keeper() int {
	e.t.Helper()
	all := e.children()
	require.Len(e.t, all, 1)
	return all[0]
}

// children returns the children of onerun.
func (e *execution) children() []int {
	e.t.Helper()
	return childrenOf(e.t, e.cmd.Process.Pid)
}

func childrenOf(t *testing.T, pid int) (all []int) {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	require.NoError(t, err)
	for _, file := range tasks {
		text, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // the thread has ended
		}
		require.NoError(t, err)
		for _, field := range strings.Fields(string(text)) {
			pid, err := strconv.Atoi(field)
			require.NoError(t, err)
			all = append(all, pid)
		}
	}
	return all
}

// tree returns a process and all that descend from it.
func tree(t *testing.T, pid int) []int {
	t.Helper()
	all := []int{pid}
	for _, child := range childrenOf(t, pid) {
		all = append(all, tree(t, child)...)
	}
	return all
}

// buffer is a bytes.Buffer that is safe for concurrent use.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
