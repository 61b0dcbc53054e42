package redistest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-1795987d/onerun/internal/testkit/processtest"
)

// startLimit bounds the wait for one server; it is long because test machines stall.
const startLimit = time.Minute

var (
	errPortTaken = errors.New("the port was taken by another process")
	errExited    = errors.New("it exited at once")
)

// Server is one redis-server process on a port of its own. Its methods may be called from any
// goroutine, but Freeze, Thaw, Kill and Restart one at a time. When the test ends the process
// is killed and reaped, and its log is shown if the test failed.
type Server struct {
	t    testing.TB
	dir  string
	port *port
	args []string
	env  []string // added to ours

	mu    sync.Mutex
	proc  *processtest.Process
	asked map[string]int64 // the commands we sent ourselves since the counters began
}

// Start runs one redis-server without persistence and returns when it answers PING. The args
// are appended to its command line ("--maxmemory", "1mb"). A server that cannot be started
// fails the test and shows its log.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return StartN(t, 1, args...)[0]
}

// StartN runs n servers that know nothing of each other, as a quorum of lock servers needs.
func StartN(t testing.TB, n int, args ...string) []*Server {
	t.Helper()
	Require(t)
	return startAll(t, n, func(dir string, port *port) ([]string, error) {
		return append(commandLine(dir, port), args...), nil
	})
}

// commandLine is what every server is started with, before its own arguments.
func commandLine(dir string, port *port) []string {
	line := []string{
		"--port", port.String(), "--bind", loopback, "--dir", dir, "--save", "", "--appendonly", "no",
		"--daemonize", "no", "--repl-diskless-sync-delay", "0",
	}
	if knownBuild().atLeast7() {
		line = append(line, "--enable-debug-command", "yes") // before, DEBUG needs no permission
	}
	return line
}

// startAll starts n servers at once. The command gives each its whole command line.
func startAll(t testing.TB, n int, command func(dir string, port *port) ([]string, error)) []*Server {
	t.Helper()
	servers, errs := make([]*Server, n), make([]error, n)
	var wg sync.WaitGroup
	for i := range servers {
		servers[i] = &Server{t: t, dir: t.TempDir()}
		wg.Go(func() { errs[i] = servers[i].start(command) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return servers
}

// start launches the server, on another port when the first is lost to another process.
func (s *Server) start(command func(dir string, port *port) ([]string, error)) error {
	for attempt := 1; ; attempt++ {
		held, err := holdPort()
		if err != nil {
			return err
		}
		s.t.Cleanup(held.release)
		s.port = held
		if s.args, err = command(s.dir, held); err == nil {
			err = s.launch()
		}
		if !errors.Is(err, errPortTaken) || attempt == 20 {
			s.t.Cleanup(s.end)
			return err
		}
	}
}

// launch runs the process and waits until it answers. On failure the process is gone.
func (s *Server) launch() error {
	proc, err := startProcess(s.logFile(), s.env, s.args...)
	if err != nil {
		return fmt.Errorf("redistest: start redis-server %s: %w", s.Addr(), err)
	}
	s.mu.Lock()
	s.proc, s.asked = proc, map[string]int64{}
	s.mu.Unlock()
	err = poll(func() error {
		if proc.Ended() {
			return nil // it will not answer any more
		}
		return s.ping()
	})
	log := s.log()
	switch {
	case err == nil && !proc.Ended():
		return nil
	case strings.Contains(log, "Address already in use"):
		err = errPortTaken
	case err == nil:
		err = errExited
	}
	proc.Kill()
	return fmt.Errorf("redistest: start redis-server %s: %w; its log:\n%s", s.Addr(), err, log)
}

// end is the cleanup of every server.
func (s *Server) end() {
	s.Kill()
	if s.t.Failed() {
		s.t.Logf("redistest: log of redis-server %s:\n%s", s.Addr(), s.log())
	}
}

// Addr is the host and port of the server; it stays the same across Restart.
func (s *Server) Addr() string { return s.port.addr() }

// PID is the process id of the present run, or of the last one if the server is down.
func (s *Server) PID() int {
	return s.process().PID()
}

// Freeze stops the process with SIGSTOP and returns when it has stopped. Connections stay open,
// and nothing is answered. After Thaw, the server executes what it was sent meanwhile.
func (s *Server) Freeze() {
	if err := s.process().Freeze(); err != nil {
		s.t.Errorf("redistest: freeze redis-server %s: %v", s.Addr(), err)
	}
}

// Thaw lets a frozen process go on with SIGCONT.
func (s *Server) Thaw() {
	if err := s.process().Thaw(); err != nil {
		s.t.Errorf("redistest: thaw redis-server %s: %v", s.Addr(), err)
	}
}

// Kill ends the process with SIGKILL, frozen or not, and returns when it is reaped; the port
// refuses connections from then on. Killing a dead server does nothing.
func (s *Server) Kill() {
	if proc := s.process(); proc != nil {
		proc.Kill()
	}
}

// Restart kills the process if it runs and starts it again on the same port with the same
// arguments: empty, with other run id and counters. Only what the test had written to disk
// (SAVE, "--appendonly yes") comes back, and while Redis reads it Restart may already have
// returned: clients then get LOADING.
func (s *Server) Restart() {
	s.Kill()
	if err := s.launch(); err != nil {
		s.t.Errorf("redistest: restart: %v", err)
	}
}

func (s *Server) process() *processtest.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc
}

func (s *Server) logFile() string { return filepath.Join(s.dir, "redis-server.log") }

// log returns the end of what the server printed.
func (s *Server) log() string {
	const most = 8 << 10
	log, err := os.ReadFile(s.logFile())
	if err != nil {
		return err.Error()
	}
	return string(log[max(0, len(log)-most):])
}
