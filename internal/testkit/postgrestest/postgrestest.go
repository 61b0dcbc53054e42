// Package postgrestest starts real PostgreSQL servers for tests.
//
//	db, err := sql.Open("pgx", postgrestest.Start(t).DSN())
package postgrestest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
	"github.com/seed-1795987d/onerun/internal/testkit/processtest"
)

const (
	// requireEnv names the variable that turns a left-out test into a failed one.
	requireEnv = "ONERUN_REQUIRE_POSTGRES"

	// patience is how long a server may take to start or to stop: test machines stall.
	patience = 30 * time.Second
)

// A Server is one PostgreSQL server with an empty database. It listens on a Unix socket alone.
type Server struct {
	dir  string // has the data, the socket and the log
	bin  string // has the programs
	set  []string
	proc *processtest.Process

	databases atomic.Int64 // that were created
}

// Start runs a server and returns when it accepts connections. It is stopped when the test ends,
// and its log is shown if the test failed. If PostgreSQL is not installed, the test is skipped, or
// fails when ONERUN_REQUIRE_POSTGRES is set to anything. Settings, such as "fsync=on", replace
// those for tests.
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	s := &Server{set: settings, bin: programs(t, "/usr/lib/postgresql/*/bin/initdb")}
	s.startFor(t, func() error { return s.start() })
	return s
}

// startFor starts a server, and stops it when the test ends.
func (s *Server) startFor(t testing.TB, start func() error) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			log, _ := os.ReadFile(s.log())
			t.Logf("postgrestest: the log of the server:\n%s", log)
		}
		if err := s.end(); err != nil {
			t.Errorf("postgrestest: stop: %v", err)
		}
	})
	if err := start(); err != nil {
		t.Fatalf("postgrestest: start: %v", err)
	}
}

// DSN returns a URL of the database, as pgx and lib/pq take it.
func (s *Server) DSN() string { return "postgres:///postgres?user=postgres&host=" + s.dir }

// Database creates another database, and returns a URL of it.
func (s *Server) Database(t testing.TB) (dsn string) {
	t.Helper()
	name := fmt.Sprintf("d%d", s.databases.Add(1))
	if err := s.run("createdb", "--host", s.dir, "--username=postgres", name); err != nil {
		t.Fatalf("postgrestest: %v", err)
	}
	return "postgres:///" + name + "?user=postgres&host=" + s.dir
}

func (s *Server) log() string { return filepath.Join(s.dir, "log") }

var errMissing = errors.New("there is no initdb")

// programs returns the folder with initdb and postgres. Debian keeps it out of PATH.
func programs(t testing.TB, pattern string) string {
	t.Helper()
	if found, err := exec.LookPath("initdb"); err == nil {
		if found, err = filepath.EvalSymlinks(found); err == nil {
			return filepath.Dir(found)
		}
	}
	if found, err := filepath.Glob(pattern); err == nil && len(found) > 0 {
		return filepath.Dir(found[len(found)-1])
	}
	leftout.Unless(t, requireEnv, errMissing, "PostgreSQL", "apt-get install postgresql, or run make test")
	return ""
}

func (s *Server) start() error {
	if err := s.makeDir(); err != nil {
		return err
	}
	err := s.run("initdb", "--pgdata", s.data(), "--username=postgres",
		"--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C")
	if err != nil {
		return err
	}
	return s.serve()
}

// makeDir makes the folder of the server. The path of a socket has at most 107 bytes, which those
// of t.TempDir can exceed.
func (s *Server) makeDir() (err error) {
	s.dir, err = os.MkdirTemp("", "pg")
	return err
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// command returns a command of PostgreSQL, or another program, as the user of the server.
func (s *Server) command(program string, args ...string) (*exec.Cmd, error) {
	as, err := s.giveAway()
	if err != nil {
		return nil, err
	}
	if !filepath.IsAbs(program) {
		program = filepath.Join(s.bin, program)
	}
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.SysProcAttr = s.dir, as
	return cmd, nil
}

// run runs a program of PostgreSQL to its end.
func (s *Server) run(program string, args ...string) error {
	cmd, err := s.command(program, args...)
	if err != nil {
		return err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", program, err, out)
	}
	return nil
}

// serve starts the server on its data, and returns when it accepts connections.
func (s *Server) serve() error {
	args := []string{
		"-D", s.data(), "-k", s.dir, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=50",
	}
	for _, setting := range s.set {
		args = append(args, "-c", setting)
	}
	server, err := s.command("postgres", args...)
	if err != nil {
		return err
	}
	log, err := os.OpenFile(s.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	server.Stdout, server.Stderr = log, log
	if s.proc, err = processtest.Start(server); err != nil {
		return err
	}
	return s.waitUntilReady(filepath.Join(s.bin, "pg_isready"))
}

// waitUntilReady returns when the server accepts connections, or is not going to.
func (s *Server) waitUntilReady(isReady string) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		err := exec.Command(isReady, "-q", "-h", s.dir).Run()
		switch {
		case err == nil:
			return nil
		case s.proc.Ended():
			return fmt.Errorf("it ended: %w", s.proc.Wait())
		case time.Now().After(deadline):
			return err
		}
	}
}

// end stops the server, with its clients, and removes the folder.
func (s *Server) end() error {
	if s.proc != nil {
		s.Thaw()
		_ = s.proc.Signal(syscall.SIGINT) // "fast shutdown"; fails only if it has ended
		select {
		case <-s.proc.Done():
		case <-time.After(patience):
			s.proc.Kill()
		}
	}
	return os.RemoveAll(s.dir)
}

// giveAway gives the folder to the user postgres, because PostgreSQL does not run as root.
func (s *Server) giveAway() (*syscall.SysProcAttr, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	to, err := user.Lookup("postgres")
	if err != nil {
		if to, err = user.Lookup("nobody"); err != nil {
			return nil, err
		}
	}
	uid, err := strconv.ParseUint(to.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(to.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	if err := os.Chown(s.dir, int(uid), int(gid)); err != nil {
		return nil, err
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
}
