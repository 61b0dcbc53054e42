package postgrestest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/seed-1795987d/onerun/internal/testkit/daemon"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
	"github.com/seed-1795987d/onerun/internal/testkit/processtest"
)

// poolerSettings are those of PgBouncer. Each transaction of a client may get another session.
const poolerSettings = `[databases]
postgres = host=%[1]s user=postgres
[pgbouncer]
listen_addr =
unix_socket_dir = %[1]s
auth_type = any
pool_mode = transaction
default_pool_size = 10
max_client_conn = 100
`

// StartPooler runs PgBouncer in transaction mode before the server, and returns a URL for pgx. It
// stops when the test ends. If PgBouncer is not installed, the test is skipped or fails as in
// Start.
func (s *Server) StartPooler(t testing.TB) (dsn string) {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		program = "/usr/sbin/pgbouncer"
	}
	if _, err := os.Stat(program); err != nil {
		leftout.Unless(t, requireEnv, errors.New("there is no pgbouncer"), "PgBouncer", "apt-get install pgbouncer, or run make test")
	}
	settings := filepath.Join(s.daemon.Dir, "pgbouncer.ini")
	if err := os.WriteFile(settings, fmt.Appendf(nil, poolerSettings, s.daemon.Dir), 0o644); err != nil {
		t.Fatalf("postgrestest: pooler: %v", err)
	}
	cmd, err := s.daemon.Command(program, settings)
	if err != nil {
		t.Fatalf("postgrestest: pooler: %v", err)
	}
	proc, err := processtest.Start(cmd)
	if err != nil {
		t.Fatalf("postgrestest: pooler: %v", err)
	}
	t.Cleanup(proc.Kill)
	for deadline := time.Now().Add(daemon.Patience); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(s.daemon.Dir, ".s.PGSQL.6432")); err == nil {
			break
		}
		if proc.Ended() || time.Now().After(deadline) {
			t.Fatalf("postgrestest: the pooler did not start")
		}
	}
	return s.DSN() + "&port=6432&default_query_exec_mode=exec"
}
