package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/postgres"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/postgrestest"
)

// Each of these has a database of its own on one server.
func TestLocker(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t)
	for name, test := range map[string]func(t *testing.T, dsn string){
		"Migrate creates the table once, also if several processes call it": createsTheTable,
		"the rights in the documentation are enough":                        needsFewRights,
		"a row that another transaction has locked delays no other renewal": lockedRowDelaysNoOther,
		"a claim that is in a batch twice has its highest fence":            claimTwiceInABatch,
		"a release is notified only if there is a waiter":                   notifiesWaiters,
		"a listener that has lost its connection is replaced":               survivesLossOfListener,
		"rows that nothing needs are deleted":                               cleans,
		"releases delete old rows":                                          cleansByItself,
		"one of the claims that meet on a new key is granted":               oneOfNewKey,
		"a waiter of another process is granted the key after its release":  waiterIsServed,
		"errors have a kind":                                                errorsHaveAKind,
		"a fence is checked in the transaction of the caller":               checksFences,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, server.Database(t))
		})
	}
}

// A renewal that has no answer yet may be repeated, and both may go out together.
func claimTwiceInABatch(t *testing.T, dsn string) {
	l, _ := migrated(t, dsn)
	low := claim("key", long)
	low.Fence = mustAcquire(t, l, low).Fence + 5
	high, other := low, claim("another", long)
	high.Fence += 2
	for first := range 2 {
		claims := []driver.Claim{low, high, other}
		claims[0], claims[first] = claims[first], claims[0]
		held := make([]bool, len(claims))
		driver.Await(t.Context(), l, driver.OpRenew, claims, driver.After{}, func(i int, a driver.Answer, err error) {
			require.NoError(t, err)
			held[i] = a.Held
		})
		require.Equal(t, []bool{true, true, false}, held)
		info, err := l.Show(t.Context(), "key")
		require.NoError(t, err)
		require.Equal(t, high.Fence, info.Holders[0].Fence)
		low.Fence, high.Fence = low.Fence+10, high.Fence+10
	}
}

func createsTheTable(t *testing.T, dsn string) {
	db := open(t, dsn)
	exec(t, db, `CREATE SCHEMA jobs`)
	for _, table := range []string{"onerun_leases", "leases", "jobs.leases", "user"} {
		l := postgres.New(db, postgres.WithTable(table))
		var all sync.WaitGroup
		for range 8 { // replicas that start at the same time
			all.Go(func() { require.NoError(t, l.Migrate(t.Context())) })
		}
		all.Wait()
		mustAcquire(t, l, claim("key", long))
	}
	exec(t, db, `DROP TABLE onerun_leases`)
	exec(t, db, postgres.Schema)
	exec(t, db, postgres.Schema)
	mustAcquire(t, postgres.New(db), claim("key", long))
}

var sqlBlock = regexp.MustCompile("(?ms)^```sql\n(GRANT .*?)^```")

// The rights that docs/stores/postgres.md lists are enough.
func needsFewRights(t *testing.T, dsn string) {
	_, db := migrated(t, dsn)
	page, err := os.ReadFile("../../../docs/stores/postgres.md")
	require.NoError(t, err)
	grant := sqlBlock.FindSubmatch(page)
	require.NotNil(t, grant)
	exec(t, db, `CREATE ROLE app LOGIN`)
	exec(t, db, string(grant[1]))
	l := postgres.New(open(t, dsn+"&user=app"), postgres.WithListener(listenTo(dsn+"&user=app")))
	require.NoError(t, l.Migrate(t.Context()), "the table exists")

	woken := make(chan struct{}, 100)
	stop := l.Subscribe("key", "", func(time.Duration) { woken <- struct{}{} })
	defer stop()
	<-woken
	c := claim("key", long)
	c.MaxHolders = 2
	g := mustAcquire(t, l, c)
	require.NoError(t, l.InTx(t.Context(), under(c, g.Fence), func(*sql.Tx) error { return nil }))
	_, err = l.Release(t.Context(), c, driver.After{})
	require.NoError(t, err)
	require.NoError(t, l.Append(t.Context(), "job", driver.Entry{At: 1, Record: []byte("r")}, 1))
	_, err = l.Raise(t.Context(), "job", "n", 1)
	require.NoError(t, err)
	_, err = l.Clean(t.Context(), 10)
	require.NoError(t, err)
	_, _, err = l.Keys(t.Context(), "", "", 10)
	require.NoError(t, err)
	require.NotEmpty(t, l.Warnings(t.Context()), "the server of the tests runs without fsync")
}

func TestNew_refusesWhatCannotWork(t *testing.T) {
	db := open(t, "postgres:///postgres")
	for _, l := range []*postgres.Locker{
		postgres.New(nil), postgres.New(db, postgres.WithListener(nil)), postgres.New(db, postgres.WithTable("")),
		postgres.New(db, postgres.WithTable(`x"; DROP TABLE y`)), postgres.New(db, postgres.WithTable("A")),
		postgres.New(db, postgres.WithTable("a.b.c")),
	} {
		_, err := guard.New(l)
		var setting *driver.SettingError
		require.ErrorAs(t, err, &setting)
		_, err = l.TryAcquire(t.Context(), claim("key", long))
		requireKind(t, driver.KindSettings, err)
		require.Error(t, l.Migrate(t.Context()))
		l.Subscribe("key", "", func(time.Duration) {})()
	}
}

// A row that another transaction has locked delays no other renewal.
func lockedRowDelaysNoOther(t *testing.T, dsn string) {
	l, db := migrated(t, dsn)
	claims := []driver.Claim{claim("a", long), claim("locked", long), claim("c", long)}
	for _, c := range claims {
		mustAcquire(t, l, c)
	}
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), `SELECT FROM onerun_leases WHERE key = 'locked' FOR UPDATE`)
	require.NoError(t, err)

	renewed := make(chan int, len(claims))
	failed := make(chan error, len(claims))
	ended := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(ended)
		driver.Await(ctx, l, driver.OpRenew, claims, driver.After{}, func(i int, a driver.Answer, err error) {
			if a.Held {
				renewed <- i
			} else {
				failed <- err
			}
		})
	}()
	require.ElementsMatch(t, []int{0, 2}, []int{<-renewed, <-renewed})
	require.Empty(t, failed)
	cancel()
	requireKind(t, driver.KindCanceled, <-failed)
	<-ended
	require.NoError(t, tx.Rollback())
}

// NOTIFY takes a lock of the whole instance when it commits.
func notifiesWaiters(t *testing.T, dsn string) {
	l, db := migrated(t, dsn)
	waiting, _ := migrated(t, dsn, postgres.WithListener(listenTo(dsn)))
	var notifications atomic.Int64
	listening := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	var listener sync.WaitGroup
	listener.Go(func() {
		_ = listenTo(dsn)(ctx, "onerun_leases", func() { close(listening) }, func(string) { notifications.Add(1) })
	})
	<-listening
	cycle := func() {
		c := claim("key", long)
		mustAcquire(t, l, c)
		_, err := l.Release(t.Context(), c, driver.After{})
		require.NoError(t, err)
	}
	for range 10 {
		cycle()
	}
	woken := make(chan struct{}, 100)
	stop := waiting.Subscribe("key", "", func(time.Duration) { woken <- struct{}{} })
	<-woken // the subscription has begun
	require.Zero(t, notifications.Load())
	require.Eventually(t, func() bool { // its listener is connected
		var marked bool
		err := db.QueryRowContext(t.Context(), `SELECT notify_until > now() FROM onerun_leases WHERE key = 'key'`).Scan(&marked)
		return err == nil && marked
	}, 10*time.Second, 5*time.Millisecond)
	for n := range int64(5) {
		cycle()
		require.Eventually(t, func() bool { return notifications.Load() == n+1 }, 10*time.Second, 5*time.Millisecond)
		<-woken
	}
	stop()
	cancel()
	listener.Wait()
}

// A listener that has lost its connection is replaced, and waiters are woken meanwhile.
func survivesLossOfListener(t *testing.T, dsn string) {
	l, db := migrated(t, dsn, postgres.WithListener(listenTo(dsn)))
	other, _ := migrated(t, dsn)
	var woken atomic.Int64
	stop := l.Subscribe("key", "", func(time.Duration) { woken.Add(1) })
	defer stop()
	require.Eventually(t, func() bool { return woken.Load() > 0 }, 10*time.Second, 5*time.Millisecond)
	for range 3 {
		exec(t, db, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'`)
		c := claim("key", long)
		mustAcquire(t, other, c)
		before := woken.Load()
		_, err := other.Release(t.Context(), c, driver.After{})
		require.NoError(t, err)
		require.Eventually(t, func() bool { return woken.Load() > before }, 10*time.Second, 5*time.Millisecond)
	}
}

func cleans(t *testing.T, dsn string) {
	l, db := migrated(t, dsn)
	last := map[string]uint64{}
	for i := range 6 {
		c := claim("released "+strconv.Itoa(i), long)
		last[c.Key] = mustAcquire(t, l, c).Fence
		_, err := l.Release(t.Context(), c, driver.After{})
		require.NoError(t, err)
	}
	mustAcquire(t, l, claim("held", long))
	done, ahead := claim("done", long), claim("ahead", long)
	mustAcquire(t, l, done)
	_, err := l.Release(t.Context(), done, driver.After{Keep: long, Done: true})
	require.NoError(t, err)
	ahead.Fence = mustAcquire(t, l, ahead).Fence + 1<<30
	_, err = l.Renew(t.Context(), ahead)
	require.NoError(t, err)
	_, err = l.Release(t.Context(), ahead, driver.After{})
	require.NoError(t, err)

	deleted, err := l.Clean(t.Context(), 100)
	require.NoError(t, err)
	require.Zero(t, deleted, "a row is kept for a day")
	exec(t, db, `UPDATE onerun_leases SET forget_on = '2026-01-01'`)
	time.Sleep(1200 * time.Millisecond) // the clock passes the fences, in whole seconds
	for _, want := range []int{4, 2, 0} {
		deleted, err = l.Clean(t.Context(), 4)
		require.NoError(t, err)
		require.Equal(t, want, deleted)
	}
	for key, fence := range last {
		require.Greater(t, mustAcquire(t, l, claim(key, long)).Fence, fence)
	}
	require.Greater(t, mustAcquire(t, l, claim("ahead", long)).Fence, ahead.Fence)
	for key, want := range map[string]driver.State{"held": driver.Busy, "done": driver.Done} {
		g, err := l.TryAcquire(t.Context(), claim(key, long))
		require.NoError(t, err)
		require.Equal(t, want, g.State)
	}
}

func cleansByItself(t *testing.T, dsn string) {
	l, db := migrated(t, dsn)
	exec(t, db, `INSERT INTO onerun_leases (key, state, ends, version, forget_on)
		SELECT ('old ' || i)::bytea, 'free', '2026-01-01', 1, '2026-01-03' FROM generate_series(1, 400) AS i`)
	for i := range 256 {
		c := claim("key "+strconv.Itoa(i%4), long)
		mustAcquire(t, l, c)
		_, err := l.Release(t.Context(), c, driver.After{})
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool {
		var n int
		return db.QueryRowContext(t.Context(), `SELECT count(*) FROM onerun_leases`).Scan(&n) == nil && n == 4
	}, 10*time.Second, 10*time.Millisecond)
}

func errorsHaveAKind(t *testing.T, dsn string) {
	admin := open(t, dsn)
	try := func(l *postgres.Locker) error {
		_, err := l.TryAcquire(within(t, time.Second), claim("key", long))
		return err
	}
	missing := try(postgres.New(admin))
	requireKind(t, driver.KindSettings, missing)
	require.ErrorContains(t, missing, "call Migrate")
	require.NoError(t, postgres.New(admin).Migrate(t.Context()))
	require.NoError(t, try(postgres.New(admin)))

	exec(t, admin, `CREATE ROLE nobody LOGIN`)
	requireKind(t, driver.KindAuth, try(postgres.New(open(t, dsn+"&user=nobody"))))
	require.ErrorContains(t, postgres.New(open(t, dsn+"&user=nobody"), postgres.WithTable("other")).Migrate(t.Context()), "permission denied")
	requireKind(t, driver.KindAuth, try(postgres.New(open(t, dsn+"&user=unknown"))))
	requireKind(t, driver.KindReadOnly, try(postgres.New(open(t, dsn+"&default_transaction_read_only=on"))))

	busy := open(t, dsn)
	busy.SetMaxOpenConns(1)
	conn, err := busy.Conn(t.Context())
	require.NoError(t, err)
	requireKind(t, driver.KindPoolExhausted, try(postgres.New(busy)))
	require.NoError(t, conn.Close())

	require.NoError(t, busy.Close())
	requireKind(t, driver.KindClosed, try(postgres.New(busy)))
	requireKind(t, driver.KindConnection, try(postgres.New(open(t, dsn+"&port=1"))))

	exec(t, admin, `ALTER ROLE nobody CONNECTION LIMIT 0`)
	requireKind(t, driver.KindLimit, try(postgres.New(open(t, dsn+"&user=nobody"))))

	lock, err := admin.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = lock.ExecContext(t.Context(), `LOCK TABLE onerun_leases`)
	require.NoError(t, err)
	requireKind(t, driver.KindTimeout, try(postgres.New(open(t, dsn+"&lock_timeout=50"))))
	requireKind(t, driver.KindTimeout, try(postgres.New(open(t, dsn+"&statement_timeout=50"))))
	requireKind(t, driver.KindTimeout, try(postgres.New(open(t, dsn))))
	require.NoError(t, errors.Join(lock.Rollback()))
}

// A new key has no row that a claim could lock.
func oneOfNewKey(t *testing.T, dsn string) {
	const claimants = 4
	l, db := migrated(t, dsn)
	db.SetMaxOpenConns(claimants)
	for range claimants { // connect, and prepare the statement
		go func() { _, _ = l.TryAcquire(t.Context(), claim("warm", long)) }()
	}
	for i := range 300 {
		var granted atomic.Int64
		var all sync.WaitGroup
		for range claimants {
			all.Go(func() {
				g, err := l.TryAcquire(t.Context(), claim("new "+strconv.Itoa(i), long))
				if err == nil && g.State == driver.Granted {
					granted.Add(1)
				}
			})
		}
		all.Wait()
		require.EqualValues(t, 1, granted.Load())
	}
}

func waiterIsServed(t *testing.T, dsn string) {
	for name, opts := range map[string][]postgres.Option{
		"polling":   nil,
		"listening": {postgres.WithListener(listenTo(dsn))},
	} {
		t.Run(name, func(t *testing.T) {
			var guards [2]*guard.Guard
			for i := range guards {
				l, _ := migrated(t, dsn, opts...)
				g, err := guard.New(l, guard.WithTTL(20*time.Second))
				require.NoError(t, err)
				guards[i] = g
				t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
			}
			for i := range 5 {
				holder, waiter := guards[i%2], guards[1-i%2]
				lease, err := holder.Acquire(t.Context(), name)
				require.NoError(t, err)
				var served time.Time
				done := make(chan error)
				go func() {
					done <- waiter.Do(t.Context(), name, func(context.Context) error {
						served = time.Now()
						return nil
					}, guard.WithWait(15*time.Second))
				}()
				time.Sleep(300 * time.Millisecond) // the waiter has subscribed, or looks
				released := time.Now()
				require.NoError(t, lease.Release(t.Context()))
				require.NoError(t, <-done)
				t.Logf("served after %v", served.Sub(released))
				require.Less(t, served.Sub(released), 5*time.Second, "long before half of the TTL")
			}
		})
	}
}
