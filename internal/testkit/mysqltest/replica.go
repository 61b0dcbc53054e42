package mysqltest

import (
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/seed-1795987d/onerun/internal/testkit/daemon"
)

// StartPrimary is Start for a server that writes a log which replicas can follow. It also listens
// on a port of the loopback.
func StartPrimary(t testing.TB, settings ...string) *Server {
	t.Helper()
	return Start(t, append(replicates(t, 1), settings...)...)
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

// Port returns the port on which a primary or a replica listens.
func (s *Server) Port() (port string) {
	for _, setting := range s.set {
		if found, ok := strings.CutPrefix(setting, "port="); ok {
			port = found
		}
	}
	return port
}

// StartReplica runs another server that follows this one, a primary, asynchronously, until Promote.
// It is read-only, and has what the primary logs. It stops when the test ends.
func (s *Server) StartReplica(t testing.TB, settings ...string) *Server {
	t.Helper()
	r := Start(t, slices.Concat(replicates(t, 2), []string{"skip-slave-start=1"}, settings)...)
	err := s.Exec("CREATE USER IF NOT EXISTS replica@'127.0.0.1' IDENTIFIED BY ''",
		"GRANT REPLICATION SLAVE ON *.* TO replica@'127.0.0.1'")
	if err == nil {
		err = r.follow(s.Port())
	}
	if err != nil {
		t.Fatalf("mysqltest: replica: %v", err)
	}
	return r
}

func (s *Server) follow(port string) error {
	return s.Exec("SET GLOBAL read_only = 1", "CHANGE MASTER TO master_host='127.0.0.1', master_port="+port+
		", master_user='replica', master_use_gtid=slave_pos, master_connect_retry=1", "START SLAVE")
}

// Follow makes a server that has ended a replica of the one at that port, as StartReplica does. It
// drops its own databases, and reads the log of the other one from its beginning.
func (s *Server) Follow(t testing.TB, port string) {
	t.Helper()
	<-s.daemon.Process.Done()
	s.Restart(t)
	own, err := s.databases()
	statements := []string{"SET sql_log_bin = 0"}
	for _, name := range own {
		statements = append(statements, "DROP DATABASE "+name)
	}
	if err == nil {
		// A replica skips what a server with its own ID has written.
		id := 100 + rand.IntN(1<<30) //nolint:gosec // it need not be secret
		err = s.Exec(append(statements, "RESET MASTER", "SET GLOBAL gtid_slave_pos = ''", fmt.Sprint("SET GLOBAL server_id = ", id))...)
	}
	if err == nil {
		err = s.follow(port)
	}
	if err != nil {
		t.Fatalf("mysqltest: follow: %v", err)
	}
}

// databases returns those that a test has made.
func (s *Server) databases() (names []string, err error) {
	db, err := sql.Open("mysql", s.DSN(""))
	if err != nil {
		return nil, err
	}
	defer db.Close()
	rows, err := db.Query("SHOW DATABASES LIKE 'onerun%'")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, rows.Err()
}

// Promote makes a replica a server that accepts writes, and follows nobody. It applies first what
// it has received.
func (s *Server) Promote(t testing.TB) {
	t.Helper()
	err := s.Exec("STOP SLAVE IO_THREAD")
	if err == nil {
		err = s.applyReceived()
	}
	if err == nil {
		err = s.Exec("STOP SLAVE", "RESET SLAVE ALL", "SET GLOBAL read_only = 0")
	}
	if err != nil {
		t.Fatalf("mysqltest: promote: %v", err)
	}
}

// applyReceived returns when a replica has applied what it has received.
func (s *Server) applyReceived() error {
	db, err := sql.Open("mysql", s.DSN(""))
	if err != nil {
		return err
	}
	defer db.Close()
	rows, err := db.Query("SHOW SLAVE STATUS")
	if err != nil {
		return err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil || !rows.Next() {
		return fmt.Errorf("it is no replica: %w", err)
	}
	values := make([]any, len(columns))
	for i := range values {
		values[i] = new(sql.RawBytes)
	}
	if err := rows.Scan(values...); err != nil {
		return err
	}
	received := string(*values[slices.Index(columns, "Gtid_IO_Pos")].(*sql.RawBytes))
	if err := errors.Join(rows.Close(), rows.Err()); err != nil {
		return err
	}
	var late int
	if err := db.QueryRow("SELECT MASTER_GTID_WAIT('" + received + "', 20)").Scan(&late); err != nil || late != 0 {
		return fmt.Errorf("it has not applied %s: %w", received, err)
	}
	return nil
}
