package mysqltest

import (
	"testing"

	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
)

// Own reports whether the server is the test's own, which the methods below need.
func (s *Server) Own() bool { return s.given == "" }

// NeedOwn skips a test that needs a server of its own if it has that of ONERUN_MYSQL_DSN.
func (s *Server) NeedOwn(t testing.TB) {
	t.Helper()
	leftout.If(t, !s.Own(), "it needs a server of its own, and "+dsnEnv+" is set")
}

// Kill ends the server with SIGKILL.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	s.NeedOwn(t)
	s.daemon.Process.Kill()
}

// Restart starts a server that was killed again, on its data.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	if err := s.serve(); err != nil {
		t.Fatalf("mysqltest: restart: %v", err)
	}
}

// Freeze stops the server with SIGSTOP, until Thaw.
func (s *Server) Freeze(t testing.TB) {
	t.Helper()
	s.NeedOwn(t)
	if err := s.daemon.Process.Freeze(); err != nil {
		t.Fatalf("mysqltest: freeze: %v", err)
	}
}

// Thaw lets a frozen server go on.
func (s *Server) Thaw() { _ = s.daemon.Process.Thaw() } // fails only if it has ended

// PID returns the process of the server.
func (s *Server) PID() int { return s.daemon.Process.PID() }
