package mysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	onerun "github.com/seed-1795987d/onerun/backend/mysql"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
	"github.com/seed-1795987d/onerun/internal/testkit/mysqltest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// requireKind asserts that the store could not be asked, and why.
func requireKind(t testing.TB, want driver.StoreErrorKind, err error) {
	t.Helper()
	var store *driver.StoreError
	require.ErrorAs(t, err, &store)
	require.Equal(t, want, store.Kind, err.Error())
}

func TestLong_serverIsKilledAndRestarted(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	server := mysqltest.Start(t)
	dsn := server.Database(t)
	l, _ := migrated(t, dsn)
	other, _ := migrated(t, dsn)
	freed := claim("freed", long)
	first := mustAcquire(t, l, freed)
	_, err := l.Release(t.Context(), freed, driver.After{})
	require.NoError(t, err)
	g, err := guard.New(l, guard.WithTTL(15*time.Second))
	require.NoError(t, err)
	defer func() { require.NoError(t, g.Close(context.Background())) }()
	require.NoError(t, g.Do(t.Context(), "held", func(ctx context.Context) error {
		server.Kill(t)
		_, err := other.TryAcquire(within(t, 5*time.Second), claim("held", long))
		requireKind(t, driver.KindConnection, err)
		server.Restart(t)
		require.Eventually(t, func() bool {
			got, err := other.TryAcquire(within(t, time.Second), claim("held", long))
			return err == nil && got.State == driver.Busy
		}, 10*time.Second, 20*time.Millisecond, "what was committed is kept")
		return ctx.Err()
	}))
	require.Greater(t, awaitGrant(t, other, claim("freed", long)).Fence, first.Fence)
	mustAcquire(t, other, claim("held", long))
}

func TestLong_serverIsFrozen(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	server := mysqltest.Start(t)
	dsn := server.Database(t)
	l, _ := migrated(t, dsn)
	other, _ := migrated(t, dsn)
	g, err := guard.New(l, guard.WithTTL(time.Second))
	require.NoError(t, err)
	var fence uint64
	err = g.Do(t.Context(), "key", func(ctx context.Context) error {
		fence = guard.Fence(ctx)
		frozen := time.Now()
		server.Freeze(t)
		<-ctx.Done()
		require.Less(t, time.Since(frozen), 2*time.Second, "although the server does not answer")
		require.ErrorIs(t, context.Cause(ctx), guard.ErrLost)
		server.Thaw()
		return nil
	})
	require.ErrorIs(t, err, guard.ErrLost)
	last := claim("key", long)
	next := awaitGrant(t, other, last)
	require.Greater(t, next.Fence, fence)
	require.NoError(t, g.Close(context.Background()))
	require.NoError(t, other.InTx(t.Context(), under(last, next.Fence), func(*sql.Tx) error { return nil }))
}

// A cutter dials connections, and cuts all of them when it is told.
type cutter struct {
	mu    sync.Mutex
	conns []net.Conn
}

// open returns a client by connections of the cutter.
func (c *cutter) open(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	config, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	config.Logger = &mysql.NopLogger{}
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err == nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.conns = append(c.conns, conn)
		}
		return conn, err
	}
	connector, err := mysql.NewConnector(config)
	require.NoError(t, err)
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(10)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func (c *cutter) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	c.conns = nil
}

// The outcome of a statement whose connection is cut is unknown.
func TestLong_connectionsAreCut(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	server := mysqltest.Start(t)
	dsn := server.Database(t)
	var here, there cutter
	s := suite(t, server, here.open(t, dsn), there.open(t, dsn))
	admin := open(t, dsn)
	s.New = func(t testing.TB) guard.Locker {
		exec(t, admin, `TRUNCATE onerun_leases`)
		return s.Again(t, nil)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var cutting sync.WaitGroup
	cutting.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			[]*cutter{&here, &there}[i%2].cut()
			time.Sleep(50 * time.Millisecond) // most calls are to succeed
		}
	})
	guardtest.RunExclusion(t, s)
	cancel()
	cutting.Wait()
}

// A claim does not wait for whoever has locked rows, and a renewal waits for its own row alone.
func TestLong_rowsAreLockedByAnotherProgram(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	l, db := migrated(t, mysqltest.Start(t).Database(t))
	var claims []driver.Claim
	for i := range 10 {
		c := claim(fmt.Sprint("k", i), long)
		mustAcquire(t, l, c)
		claims = append(claims, c)
	}
	freed := claim("freed", long)
	mustAcquire(t, l, freed)
	_, err := l.Release(t.Context(), freed, driver.After{})
	require.NoError(t, err)
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer tx.Rollback()
	_, err = tx.ExecContext(t.Context(), `SELECT * FROM onerun_leases FORCE INDEX (PRIMARY) WHERE k IN ('freed', '\0gfreed', 'k3') FOR UPDATE`)
	require.NoError(t, err)

	began := time.Now()
	busy, err := l.TryAcquire(within(t, 10*time.Second), claim("freed", long))
	require.NoError(t, err)
	require.Equal(t, driver.Busy, busy.State)
	require.Less(t, time.Since(began), 5*time.Second)
	ctx := within(t, time.Second)
	driver.Await(ctx, l, driver.OpRenew, claims, driver.After{}, func(i int, a driver.Answer, err error) {
		if i == 3 {
			require.Error(t, err)
			return
		}
		require.NoError(t, err)
		require.True(t, a.Held)
		require.NoError(t, ctx.Err(), "others do not wait")
	})
	require.NoError(t, tx.Rollback())
	awaitGrant(t, l, claim("freed", long))
}

func TestLong_failoverToAReplica(t *testing.T) {
	redistest.Long(t)
	primary := mysqltest.StartPrimary(t)
	dsn := primary.Database(t)
	replica := primary.StartReplica(t)
	l, _ := migrated(t, dsn)
	early, old := claim("before", long), claim("old row", long)
	mustAcquire(t, l, early)
	mustAcquire(t, l, old)
	_, err := l.Release(t.Context(), old, driver.After{})
	require.NoError(t, err)
	config, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	after := open(t, replica.DSN(config.DBName))
	standby := onerun.New(after)
	require.Eventually(t, func() bool { // it has received all of that
		var n int
		return after.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM onerun_leases WHERE k = 'old row' AND state = 'free'`).Scan(&n) == nil && n == 1
	}, 20*time.Second, 10*time.Millisecond)

	// A replica grants nothing, and answers nothing: it may be behind.
	sharing := claim("before", long)
	sharing.MaxHolders = 2
	for _, c := range []driver.Claim{claim("before", long), claim("free", long), sharing} {
		_, err = standby.TryAcquire(t.Context(), c)
		requireKind(t, driver.KindReadOnly, err)
	}
	_, err = standby.Show(t.Context(), "before")
	requireKind(t, driver.KindReadOnly, err)
	_, err = driver.Entries(t.Context(), standby, "job", 1)
	requireKind(t, driver.KindReadOnly, err)
	_, err = standby.Raise(t.Context(), "job", "n", 0)
	requireKind(t, driver.KindReadOnly, err)

	// What is committed from now on does not reach the replica.
	require.NoError(t, replica.Exec("STOP SLAVE"))
	lost, again := claim("lost", long), claim("old row", long)
	lost.Fences.Reserve = 100
	fences := map[string]uint64{}
	for _, c := range []driver.Claim{lost, again} {
		g := mustAcquire(t, l, c)
		fences[c.Key] = g.Fence + uint64(g.Reserved)
	}
	primary.Kill(t)
	replica.Promote(t)
	time.Sleep(200 * time.Millisecond) // see "What is promised" on the page

	held, err := standby.Renew(t.Context(), early)
	require.NoError(t, err)
	require.True(t, held, "what the replica had received is kept")
	for _, c := range []driver.Claim{lost, again} {
		held, err = standby.Renew(t.Context(), c)
		require.NoError(t, err)
		require.False(t, held, "the holder learns of the loss at its next renewal")
		g := mustAcquire(t, standby, claim(c.Key, long))
		require.Greater(t, g.Fence, fences[c.Key], "and the fence tells the two apart")
		require.ErrorIs(t, standby.InTx(t.Context(), under(c, fences[c.Key]), nil), onerun.ErrStale)
	}
}

// A client with one connection renews while callers claim.
func TestLong_poolOfOneConnection(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	_, db := migrated(t, mysqltest.Start(t).Database(t))
	db.SetMaxOpenConns(1)
	g, err := guard.New(onerun.New(db), guard.WithTTL(time.Second))
	require.NoError(t, err)
	lease, err := g.Acquire(t.Context(), "held")
	require.NoError(t, err)
	var callers sync.WaitGroup
	for i := range 8 {
		callers.Go(func() {
			for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
				_ = g.Do(t.Context(), fmt.Sprint("call", i), func(context.Context) error { return nil })
			}
		})
	}
	callers.Wait()
	require.NoError(t, context.Cause(lease.Context()))
	require.NoError(t, lease.Release(t.Context()))
	require.NoError(t, g.Close(t.Context()))
}

// A table that is emptied, or a clock zone that changes, lets no fence fall.
func TestReset_ofTheTableLetsFencesGrow(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	l, db := migrated(t, server.Database(t))
	var last uint64
	for _, reset := range []string{`TRUNCATE onerun_leases`, `DELETE FROM onerun_leases`, `DELETE FROM onerun_leases WHERE k = 'key'`} {
		g := mustAcquire(t, l, claim("key", long))
		require.Greater(t, g.Fence, last)
		last = g.Fence
		exec(t, db, reset)
		time.Sleep(200 * time.Millisecond) // see "What is promised" on the page
	}
	require.Greater(t, awaitGrant(t, l, claim("key", long)).Fence, last)
}
