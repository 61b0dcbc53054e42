// Package postgrestest starts real PostgreSQL servers for tests.
//
//	db, err := sql.Open("pgx", postgrestest.Start(t).DSN())
package postgrestest

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/seed-1795987d/onerun/internal/testkit/daemon"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
)

// requireEnv names the variable that turns a left-out test into a failed one.
const requireEnv = "ONERUN_REQUIRE_POSTGRES"

// A Server is one PostgreSQL server with an empty database. It listens on a Unix socket alone.
type Server struct {
	daemon daemon.Daemon
	set    []string

	databases atomic.Int64 // that were created
}

// Start runs a server and returns when it accepts connections. It is stopped when the test ends,
// and its log is shown if the test failed. If PostgreSQL is not installed, the test is skipped, or
// fails when ONERUN_REQUIRE_POSTGRES is set to anything. Settings, such as "fsync=on", replace
// those for tests.
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	s := newServer(programs(t, "/usr/lib/postgresql/*/bin/initdb"))
	s.set = settings
	s.daemon.RunFor(t, func() error { return s.start() })
	return s
}

func newServer(bin string) *Server {
	s := &Server{}
	s.daemon = daemon.Daemon{
		Name: "postgrestest", Bin: bin, User: "postgres", Thaw: s.Thaw,
		Stop: syscall.SIGINT, // "fast shutdown"
	}
	return s
}

// DSN returns a URL of the database, as pgx and lib/pq take it.
func (s *Server) DSN() string { return "postgres:///postgres?user=postgres&host=" + s.daemon.Dir }

// Database creates another database, and returns a URL of it.
func (s *Server) Database(t testing.TB) (dsn string) {
	t.Helper()
	name := fmt.Sprintf("d%d", s.databases.Add(1))
	if err := s.daemon.Run("createdb", "--host", s.daemon.Dir, "--username=postgres", name); err != nil {
		t.Fatalf("postgrestest: %v", err)
	}
	return "postgres:///" + name + "?user=postgres&host=" + s.daemon.Dir
}

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
	err := s.daemon.Run("initdb", "--pgdata", s.daemon.Data(), "--username=postgres",
		"--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C")
	if err != nil {
		return err
	}
	return s.serve()
}

// serve starts the server on its data, and returns when it accepts connections.
func (s *Server) serve() error {
	args := []string{
		"-D", s.daemon.Data(), "-k", s.daemon.Dir, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=50",
	}
	for _, setting := range s.set {
		args = append(args, "-c", setting)
	}
	isReady := filepath.Join(s.daemon.Bin, "pg_isready")
	return s.daemon.Serve(func() error { return exec.Command(isReady, "-q", "-h", s.daemon.Dir).Run() }, "postgres", args...)
}
