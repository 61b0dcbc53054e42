package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	sqldriver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/mysql"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
	"github.com/seed-1795987d/onerun/internal/testkit/mysqltest"
)

// A node is a server of a cluster, with what a process has that uses it.
type node struct {
	*mysqltest.Server
	db     *sql.DB
	locker *mysql.Locker
}

// galera starts a cluster with the table of leases. The second server has no majority alone.
func galera(t *testing.T) (first, second node) {
	t.Helper()
	one, two := mysqltest.StartGalera(t)
	require.NoError(t, one.Exec("CREATE DATABASE leases"))
	first.Server, second.Server = one, two
	first.uses(t, "")
	require.NoError(t, first.locker.Migrate(t.Context()))
	two.AwaitGalera(t, 2)
	require.Eventually(t, func() bool { return two.Exec("SELECT 1 FROM leases.onerun_leases") == nil }, 10*time.Second, time.Millisecond)
	second.uses(t, "")
	return first, second
}

// uses begins to use the server.
func (n *node) uses(t testing.TB, params string) {
	n.db = open(t, n.DSN("leases")+params)
	n.locker = mysql.New(n.db)
}

// acquires makes a claim, again while the outcome is open, and reports whether it was granted.
func (n node) acquires(t testing.TB, c driver.Claim) (driver.Answer, bool) {
	for {
		a, err := n.locker.TryAcquire(within(t, 10*time.Second), c)
		require.NoError(t, err)
		if a.Reason != driver.Undecided {
			return a, a.State == driver.Granted
		}
	}
}

// Two processes that use different servers do not both get a key: what they have read is compared
// by version, and the cluster certifies the writes.
func TestLong_galeraKeepsGrantsOnDifferentServersApart(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	first, second := galera(t)
	var last uint64
	granted := map[string]int{}
	for round := range 100 {
		key := fmt.Sprint("key", round/5) // the first round finds no row, the others do
		both := []node{first, second}
		claims := []driver.Claim{claim(key, time.Minute), claim(key, time.Minute)}
		answers := make([]driver.Answer, 2)
		got := make([]bool, 2)
		var racing sync.WaitGroup
		for i, n := range both {
			racing.Go(func() { answers[i], got[i] = n.acquires(t, claims[i]) })
		}
		racing.Wait()
		require.False(t, got[0] && got[1], "round %d: %v", round, answers)
		for i, n := range both {
			if !got[i] {
				continue
			}
			granted[n.DSN("")]++
			if round%5 != 0 {
				require.Greater(t, answers[i].Fence, last)
			}
			last = answers[i].Fence
			held, err := n.locker.Release(t.Context(), claims[i], driver.After{})
			require.NoError(t, err)
			require.True(t, held)
		}
	}
	t.Log("granted by each server:", granted)
}

// A claim whose calls go to different servers needs wsrep_sync_wait: a server can lack what another
// one has committed, and would answer that a lease is not held.
func TestWeekly_galeraBehindAProxyNeedsToSyncBeforeReads(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	first, second := galera(t)
	first.uses(t, "?wsrep_sync_wait=7")
	second.uses(t, "?wsrep_sync_wait=7")
	s := store(first.Server, "").Suite(t, first.db, second.db)
	s.Freeze = nil
	guardtest.Run(t, s)
}

// A conflict with another server is an error 1213: of a statement, or of the commit.
func TestWeekly_galeraReportsConflictsAtTheCommit(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	first, second := galera(t)
	exec(t, first.db, `CREATE TABLE stock (item INT PRIMARY KEY, remaining INT) ENGINE=InnoDB`)
	exec(t, first.db, `INSERT INTO stock VALUES (1, 100)`)
	require.Eventually(t, func() bool {
		var n int
		return second.db.QueryRow(`SELECT remaining FROM stock`).Scan(&n) == nil
	}, 10*time.Second, 10*time.Millisecond)
	late, err := second.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer late.Rollback()
	_, err = late.ExecContext(t.Context(), `UPDATE stock SET remaining = 99`)
	require.NoError(t, err)
	exec(t, first.db, `UPDATE stock SET remaining = 98`) // does not wait for the lock there
	require.EqualValues(t, 1213, number(t, late.Commit()))

	c := claim("key", time.Minute)
	a, ok := first.acquires(t, c)
	require.True(t, ok)
	for _, n := range []node{first, second} {
		err := n.locker.InTx(t.Context(), under(c, a.Fence), func(*sql.Tx) error { return nil })
		requireKind(t, driver.KindUnsupported, err)
		require.ErrorContains(t, err, "a fence cannot be checked where several servers accept writes: the server is one of a Galera cluster")
		var warned bool
		for _, w := range n.locker.Warnings(t.Context()) {
			warned = warned || w.Error() == "mysql: the server is one of a Galera cluster, so CheckFence and InTx are refused"
		}
		require.True(t, warned)
	}
}

// What one server has committed, the others have received.
func TestWeekly_galeraForgetsNothingWhenAServerIsKilled(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	first, second := galera(t)
	held := claim("held", time.Hour)
	_, ok := second.acquires(t, held)
	require.True(t, ok)
	second.Kill(t)
	began := time.Now()
	_, ok = first.acquires(t, claim("held", time.Hour))
	require.False(t, ok)
	renewed, err := first.locker.Renew(within(t, 20*time.Second), held)
	require.NoError(t, err)
	require.True(t, renewed, "by the server that is left")
	t.Log("the first write has waited", time.Since(began))
	first.AwaitGalera(t, 1)
	second.Restart(t)
	first.AwaitGalera(t, 2)
	second.AwaitGalera(t, 2)
	second.uses(t, "")
	_, ok = second.acquires(t, claim("held", time.Hour))
	require.False(t, ok)

	// The server that is left has no majority: it answers nothing, until an operator allows it.
	last := claim("last", time.Hour)
	_, ok = first.acquires(t, last)
	require.True(t, ok)
	first.Kill(t)
	require.Eventually(t, func() bool {
		_, err := second.locker.TryAcquire(within(t, 10*time.Second), claim("free", time.Hour))
		return kindIs(err, driver.KindLoading)
	}, 20*time.Second, 100*time.Millisecond)
	_, err = second.locker.Renew(t.Context(), last)
	require.True(t, kindIs(err, driver.KindLoading), "%v", err)
	require.NoError(t, second.Exec("SET GLOBAL wsrep_provider_options = 'pc.bootstrap=YES'"))
	second.AwaitGalera(t, 1)
	_, ok = second.acquires(t, claim("last", time.Hour))
	require.False(t, ok, "what the other one had committed is not lost")
	renewed, err = second.locker.Renew(t.Context(), last)
	require.NoError(t, err)
	require.True(t, renewed)
}

func kindIs(err error, kind driver.StoreErrorKind) bool {
	var store *driver.StoreError
	return errors.As(err, &store) && store.Kind == kind
}

// A server that was away does not know what the others have granted. It grants nothing by that.
func TestWeekly_galeraServerThatWasAwayGrantsNothingThatIsHeld(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	first, second := galera(t)
	old := claim("key", time.Second)
	before, ok := second.acquires(t, old)
	require.True(t, ok)
	second.Freeze(t)
	var now driver.Answer
	next := claim("key", time.Hour)
	require.Eventually(t, func() bool {
		var err error
		now, err = first.locker.TryAcquire(within(t, 20*time.Second), next)
		return err == nil && now.State == driver.Granted
	}, 30*time.Second, 10*time.Millisecond)
	require.Greater(t, now.Fence, before.Fence)
	first.AwaitGalera(t, 1)
	second.Thaw()
	// At first, it has the row from before, in which the lease has expired.
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		a, err := second.locker.TryAcquire(ctx, claim("key", time.Hour))
		require.False(t, err == nil && a.State == driver.Granted, "%v", a)
		held, err := second.locker.Renew(ctx, old)
		require.False(t, err == nil && held)
		cancel()
	}
	second.AwaitGalera(t, 2)
	_, ok = second.acquires(t, claim("key", time.Hour))
	require.False(t, ok)
}

// The end of a lease is by the clock of the server of its holder, and others compare it with their
// own. This is why a fleet has to use one server at a time.
func TestWeekly_galeraServerWhoseClockIsAheadGrantsTooEarly(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	first, second := galera(t)
	c := claim("key", time.Minute)
	a, ok := first.acquires(t, c)
	require.True(t, ok)
	second.uses(t, fmt.Sprint("?timestamp=", time.Now().Add(time.Hour).Unix()))
	require.Eventually(t, func() bool {
		early, ok := second.acquires(t, claim("key", time.Minute))
		return ok && early.Fence > a.Fence
	}, 10*time.Second, 10*time.Millisecond)
	held, err := first.locker.Renew(t.Context(), c)
	require.NoError(t, err)
	require.False(t, held, "the holder learns it at its next renewal")
}

// number returns the number of an error of the server.
func number(t testing.TB, err error) uint16 {
	t.Helper()
	var failed *sqldriver.MySQLError
	require.ErrorAs(t, err, &failed)
	return failed.Number
}
