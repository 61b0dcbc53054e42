// Package mysqltest starts real MariaDB servers for tests. A test also imports a driver "mysql".
//
//	db, err := sql.Open("mysql", mysqltest.Start(t).Database(t))
//
// With ONERUN_MYSQL_DSN, such as "root:secret@tcp(127.0.0.1:3306)/", tests use that server, and
// skip what only a server of their own can show. Each test then has a database of its own there.
package mysqltest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-1795987d/onerun/internal/testkit/daemon"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
)

const (
	// requireEnv names the variable that turns a left-out test into a failed one.
	requireEnv = "ONERUN_REQUIRE_MYSQL"
	// dsnEnv names the variable with the server of a user.
	dsnEnv = "ONERUN_MYSQL_DSN"
)

// A Server is one MariaDB server, or the server of ONERUN_MYSQL_DSN.
type Server struct {
	given  string // the data source name of a user's server
	daemon daemon.Daemon
	set    []string
}

// Start runs a server and returns when it accepts connections, on a Unix socket alone. It is
// stopped when the test ends, and its log is shown if the test failed. If MariaDB is not installed,
// the test is skipped, or fails when ONERUN_REQUIRE_MYSQL is set to anything. Settings, such as
// "max-connections=5", replace those for tests. With settings, a test has a server of its own in
// any case.
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	if given := os.Getenv(dsnEnv); given != "" && len(settings) == 0 {
		return &Server{given: given}
	}
	s := newServer(t)
	s.set = settings
	s.daemon.RunFor(t, func() error {
		err := s.daemon.Run("mariadb-install-db", "--no-defaults", "--datadir="+s.daemon.Data(),
			"--tmpdir="+s.daemon.Dir, "--auth-root-authentication-method=normal", "--skip-test-db", "--innodb-log-file-size=8M")
		if err != nil {
			return err
		}
		return s.serve()
	})
	return s
}

func newServer(t testing.TB) *Server {
	t.Helper()
	s := &Server{}
	s.daemon = daemon.Daemon{
		Name: "mysqltest", Bin: programs(t), User: "mysql", Thaw: s.Thaw, Stop: syscall.SIGTERM,
	}
	return s
}

// programs returns the folder with mariadb-install-db.
func programs(t testing.TB) string {
	t.Helper()
	found, err := exec.LookPath("mariadb-install-db")
	if err == nil {
		_, err = exec.LookPath(server())
	}
	if err != nil {
		leftout.Unless(t, requireEnv, err, "MariaDB", "apt-get install mariadb-server, or run make test")
	}
	return filepath.Dir(found)
}

// server returns the program of the server. Debian has it in a folder that is not in every PATH.
func server() string {
	if found, err := exec.LookPath("mariadbd"); err == nil {
		return found
	}
	return "/usr/sbin/mariadbd"
}

// serve starts the server on its data, and returns when it accepts connections. The kernel keeps
// what a killed process has written, so nothing waits for the disk. A server that starts deletes
// temporary tables in tmpdir, also those of other servers.
func (s *Server) serve() error {
	args := []string{
		"--no-defaults", "--datadir=" + s.daemon.Data(), "--tmpdir=" + s.daemon.Dir, "--socket=" + s.socket(), "--pid-file=" + s.socket() + ".pid",
		"--skip-networking", "--innodb-buffer-pool-size=32M", "--innodb-log-file-size=8M", "--innodb-flush-method=nosync",
		"--loose-skip-feedback", "--max-connections=100",
	}
	for _, setting := range s.set {
		args = append(args, "--"+setting)
	}
	return s.daemon.Serve(func() error { return s.Exec("SELECT 1") }, server(), args...)
}

func (s *Server) socket() string { return filepath.Join(s.daemon.Dir, "sock") }

// DSN returns the data source name of the server, as go-sql-driver/mysql takes it, for a database,
// or for none. The user has all rights.
func (s *Server) DSN(database string) string {
	if s.given == "" {
		return "root@unix(" + s.socket() + ")/" + database
	}
	address := s.given[:strings.LastIndexByte(s.given, '/')+1]
	_, params, found := strings.Cut(s.given[len(address):], "?")
	if found {
		params = "?" + params
	}
	return address + database + params
}

// Database creates a database, which is removed when the test ends, and returns the data source
// name of it.
func (s *Server) Database(t testing.TB) (dsn string) {
	t.Helper()
	name := "onerun_test_" + strings.ToLower(rand.Text()[:12])
	if err := s.Exec("CREATE DATABASE " + name); err != nil {
		t.Fatalf("mysqltest: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Exec("DROP DATABASE " + name); err != nil && s.given != "" {
			t.Errorf("mysqltest: %v", err)
		}
	})
	return s.DSN(name)
}

// Exec runs statements as root, on a connection of their own.
func (s *Server) Exec(statements ...string) error {
	db, err := sql.Open("mysql", s.DSN(""))
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	ctx, cancel := context.WithTimeout(context.Background(), daemon.Patience)
	defer cancel()
	for _, statement := range statements {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}
