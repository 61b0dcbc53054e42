package failover_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/lagtest"
	"github.com/seed-1795987d/onerun/internal/testkit/mysqltest"
	"github.com/seed-1795987d/onerun/internal/testkit/postgrestest"
	"github.com/seed-1795987d/onerun/internal/testkit/processtest"
)

// awaitRow waits until a query returns true.
func awaitRow(t testing.TB, driver, dsn, query string) {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	require.NoError(t, err)
	defer db.Close()
	require.Eventually(t, func() bool {
		var is bool
		return db.QueryRow(query).Scan(&is) == nil && is
	}, 30*time.Second, 10*time.Millisecond, query)
}

// run runs statements, each in a transaction of its own.
func run(t testing.TB, driver, dsn string, statements ...string) {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	require.NoError(t, err)
	defer db.Close()
	for _, statement := range statements {
		_, err := db.ExecContext(context.Background(), statement)
		require.NoError(t, err, statement)
	}
}

// migrate makes the table of leases.
func migrate(t testing.TB, to link) {
	t.Helper()
	to.Migrate = true
	_, closeAll, err := to.open()
	require.NoError(t, err)
	closeAll()
}

// A postgresPair is a primary and a replica, which a script promotes.
type postgresPair struct {
	primary, replica *postgrestest.Server
	sockets          map[*postgrestest.Server]string // folders, with the lag
	synchronous      bool
}

func startPostgres(synchronous bool) func(t testing.TB) deployment {
	return func(t testing.TB) deployment {
		p := &postgresPair{
			primary: postgrestest.Start(t), replica: postgrestest.Start(t), synchronous: synchronous,
			sockets: map[*postgrestest.Server]string{},
		}
		for _, server := range []*postgrestest.Server{p.primary, p.replica} {
			p.sockets[server] = farSocket(t, server)
		}
		migrate(t, p.link(p.primary))
		p.replica.Kill(t)
		return p
	}
}

// farSocket returns a folder with a socket of a server that has the lag. The other server, which
// does not run as root, can use it.
func farSocket(t testing.TB, server *postgrestest.Server) (folder string) {
	t.Helper()
	const name = ".s.PGSQL.5432"
	folder, err := os.MkdirTemp("", "far")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	lagtest.Start(t, "unix", filepath.Join(folder, name), filepath.Join(server.Dir(), name), lag)
	//nolint:gosec // for that server
	require.NoError(t, errors.Join(os.Chmod(folder, 0o755), os.Chmod(filepath.Join(folder, name), 0o777)))
	return folder
}

func (p *postgresPair) link(server *postgrestest.Server) link {
	return link{Kind: "postgres", Addrs: []string{server.DSN()}, TTL: ttl}
}

// follow has the replica begin anew.
func (p *postgresPair) follow(t testing.TB) {
	p.replica.Follow(t, p.sockets[p.primary])
	state := "async"
	if p.synchronous {
		state = "sync"
		run(t, "pgx", p.primary.DSN(), `ALTER SYSTEM SET synchronous_standby_names = '*'`, `SELECT pg_reload_conf()`)
	}
	awaitRow(t, "pgx", p.primary.DSN(), `SELECT count(*) = 1 FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = '`+state+`'`)
}

func (p *postgresPair) ready(t testing.TB) scene {
	p.follow(t)
	return scene{holder: p.link(p.primary), asker: p.link(p.replica), victims: p.primary.PIDs(), key: "key", free: "free"}
}

func (p *postgresPair) failOver(t testing.TB) {
	p.replica.Promote(t)
	p.primary, p.replica = p.replica, p.primary
}

// A mariaPair is a primary and a replica, which a script promotes.
type mariaPair struct {
	primary, replica *mysqltest.Server
	ports            map[*mysqltest.Server]string // with the lag
	semiSynchronous  bool
}

const database = "onerun_failover"

func startMariaDB(semiSynchronous bool) func(t testing.TB) deployment {
	return func(t testing.TB) deployment {
		m := &mariaPair{semiSynchronous: semiSynchronous, ports: map[*mysqltest.Server]string{}}
		var settings []string
		if semiSynchronous {
			settings = []string{
				"rpl-semi-sync-slave-enabled=1", "rpl-semi-sync-master-timeout=60000", "rpl-semi-sync-master-wait-point=AFTER_SYNC",
			}
		}
		m.primary = mysqltest.StartPrimary(t, settings...)
		require.NoError(t, m.primary.Exec("CREATE DATABASE "+database))
		migrate(t, m.link(m.primary))
		m.replica = m.primary.StartReplica(t, settings...)
		for _, server := range []*mysqltest.Server{m.primary, m.replica} {
			line := lagtest.Start(t, "tcp", "127.0.0.1:0", "127.0.0.1:"+server.Port(), lag)
			m.ports[server] = line.Port()
		}
		m.replica.Kill(t)
		return m
	}
}

func (m *mariaPair) link(server *mysqltest.Server) link {
	return link{Kind: "mysql", Addrs: []string{server.DSN(database)}, TTL: ttl}
}

func (m *mariaPair) follow(t testing.TB) {
	m.replica.Follow(t, m.ports[m.primary])
	if m.semiSynchronous {
		awaitStatus(t, m.primary, "Rpl_semi_sync_master_clients", "1")
		require.NoError(t, m.primary.Exec("SET GLOBAL rpl_semi_sync_master_enabled = 1"))
	}
	require.Eventually(t, func() bool {
		return m.replica.Exec("SELECT 1 FROM "+database+".onerun_leases") == nil
	}, 30*time.Second, 10*time.Millisecond)
}

// awaitStatus waits until a variable of a server's status has a value.
func awaitStatus(t testing.TB, server *mysqltest.Server, name, value string) {
	t.Helper()
	awaitRow(t, "mysql", server.DSN(""), `SELECT VARIABLE_VALUE = '`+value+
		`' FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = '`+name+`'`)
}

func (m *mariaPair) ready(t testing.TB) scene {
	m.follow(t)
	return scene{
		holder: m.link(m.primary), asker: m.link(m.replica), victims: []int{m.primary.PID()}, key: "key", free: "free",
	}
}

func (m *mariaPair) failOver(t testing.TB) {
	m.replica.Promote(t)
	m.primary, m.replica = m.replica, m.primary
}

// A galeraPair is a cluster of two, of which the fleet uses the one that the other can do without.
type galeraPair struct {
	used, other *mysqltest.Server
	away        bool // the one that was used
}

func startGalera(t testing.TB) deployment {
	other, used := mysqltest.StartGalera(t)
	g := &galeraPair{used: used, other: other}
	require.NoError(t, other.Exec("CREATE DATABASE "+database))
	migrate(t, g.link(other))
	return g
}

func (g *galeraPair) link(server *mysqltest.Server) link {
	return link{Kind: "mysql", Addrs: []string{server.DSN(database)}, TTL: ttl}
}

func (g *galeraPair) ready(t testing.TB) scene {
	if g.away {
		g.used.Restart(t)
	}
	g.away = true
	g.used.AwaitGalera(t, 2)
	g.other.AwaitGalera(t, 2)
	return scene{
		holder: g.link(g.used), asker: g.link(g.other), victims: []int{g.used.PID()}, key: "key", free: "free",
	}
}

func (g *galeraPair) failOver(t testing.TB) { g.other.AwaitGalera(t, 1) }

// A sqliteFile is used by a third process as well, which is killed while it writes.
type sqliteFile struct {
	to     link
	writer *processtest.Child
}

func startSQLite(t testing.TB) deployment {
	s := &sqliteFile{to: link{Kind: "sqlite", Addrs: []string{filepath.Join(t.TempDir(), "leases.db")}, TTL: ttl}}
	migrate(t, s.to)
	return s
}

func (s *sqliteFile) ready(t testing.TB) scene {
	s.writer = processtest.Self(t, memberEnv+"=1")
	openMember(t, s.writer, s.to)
	s.writer.Says("opened")
	s.writer.Tell("write")
	s.writer.Says("writing")
	return scene{holder: s.to, asker: s.to, victims: []int{s.writer.PID()}, key: "key", free: "free"}
}

func (s *sqliteFile) failOver(testing.TB) { <-s.writer.Done() }
