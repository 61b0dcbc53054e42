package mysqltest

import (
	"fmt"
	"testing"

	"github.com/seed-1795987d/onerun/internal/testkit/daemon"
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

// StartPrimary is Start for a server that writes a log which replicas can follow. It also listens
// on a port of the loopback.
func StartPrimary(t testing.TB) *Server {
	t.Helper()
	return Start(t, replicates(t, 1)...)
}

// replicates returns the settings of a server in replication. It reads numbers of transactions
// (GTID).
func replicates(t testing.TB, id int) []string {
	t.Helper()
	return []string{
		"skip-networking=0", "bind-address=127.0.0.1", "port=" + daemon.FreePorts(t, 1)[0],
		"log-bin=log", fmt.Sprintf("server-id=%d", id), "gtid-strict-mode=1", "log-slave-updates=1",
	}
}

// StartReplica runs another server that follows this one, a primary, asynchronously, until Promote.
// It is read-only, and has what the primary logs. It stops when the test ends.
func (s *Server) StartReplica(t testing.TB) *Server {
	t.Helper()
	r := Start(t, append(replicates(t, 2), "read-only=1", "skip-slave-start=1")...)
	var port string
	for _, setting := range s.set {
		_, _ = fmt.Sscanf(setting, "port=%s", &port)
	}
	err := s.Exec("CREATE USER IF NOT EXISTS replica@'127.0.0.1' IDENTIFIED BY ''",
		"GRANT REPLICATION SLAVE ON *.* TO replica@'127.0.0.1'")
	if err == nil {
		err = r.Exec("CHANGE MASTER TO master_host='127.0.0.1', master_port="+port+
			", master_user='replica', master_use_gtid=slave_pos, master_connect_retry=1", "START SLAVE")
	}
	if err != nil {
		t.Fatalf("mysqltest: replica: %v", err)
	}
	return r
}

// Promote makes a replica a server that accepts writes, and follows nobody.
func (s *Server) Promote(t testing.TB) {
	t.Helper()
	if err := s.Exec("STOP SLAVE", "RESET SLAVE ALL", "SET GLOBAL read_only = 0"); err != nil {
		t.Fatalf("mysqltest: promote: %v", err)
	}
}
