package postgres_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/postgres"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

const long = time.Minute

// claim returns a claim of the key with an ID of its own.
func claim(key string, ttl time.Duration) driver.Claim {
	id := rand.Text()
	return driver.Claim{Key: key, ID: id, Owner: id, TTL: ttl, Label: "claimed by " + id}
}

// A leased claim is a lease that was acquired without a Guard.
type leased driver.Claim

func (l leased) Claims() []driver.Claim { return []driver.Claim{driver.Claim(l)} }

// under returns the lease of a claim that was granted, under a fence.
func under(c driver.Claim, fence uint64) leased {
	c.Fence = fence
	return leased(c)
}

// mustAcquire makes a claim that must be granted.
func mustAcquire(t testing.TB, l *postgres.Locker, c driver.Claim) driver.Answer {
	t.Helper()
	g, err := l.TryAcquire(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, driver.Granted, g.State)
	return g
}

// awaitGrant makes a claim until it is granted.
func awaitGrant(t testing.TB, l *postgres.Locker, c driver.Claim) (g driver.Answer) {
	t.Helper()
	require.Eventually(t, func() bool {
		var err error
		g, err = l.TryAcquire(t.Context(), c)
		return err == nil && g.State == driver.Granted
	}, 20*time.Second, 5*time.Millisecond)
	return g
}

// A stock is a table with a number that is read and written in two steps.
func newStock(t testing.TB, db *sql.DB) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), `CREATE TABLE stock AS SELECT 100 AS remaining`)
	require.NoError(t, err)
}

func sell(ctx context.Context, tx *sql.Tx) error {
	var n int
	if err := tx.QueryRowContext(ctx, `SELECT remaining FROM stock`).Scan(&n); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, `UPDATE stock SET remaining = $1`, n-1)
	return err
}

func remaining(t testing.TB, db *sql.DB) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), `SELECT remaining FROM stock`).Scan(&n))
	return n
}

func checksFences(t *testing.T, dsn string) {
	l, db := migrated(t, dsn)
	other, _ := migrated(t, dsn)
	newStock(t, db)
	selling := func(tx *sql.Tx) error { return sell(t.Context(), tx) }

	t.Run("a write under a fence that is not the newest does not commit", func(t *testing.T) {
		before := remaining(t, db)
		old := claim("stale", 50*time.Millisecond)
		first := mustAcquire(t, l, old)
		second := claim("stale", long)
		g := awaitGrant(t, other, second)
		require.ErrorIs(t, l.InTx(t.Context(), under(old, first.Fence), selling), postgres.ErrStale)
		require.Equal(t, before, remaining(t, db))
		require.NoError(t, other.InTx(t.Context(), under(second, g.Fence), selling))
		require.Equal(t, before-1, remaining(t, db))
		for _, fence := range []uint64{0, g.Fence - 1, g.Fence + 1, g.Fence + 1<<40} {
			require.ErrorIs(t, l.InTx(t.Context(), under(second, fence), selling), postgres.ErrStale)
		}
		require.ErrorIs(t, l.InTx(t.Context(), under(claim("unknown", long), g.Fence), selling), postgres.ErrStale)
		require.ErrorIs(t, l.InTx(t.Context(), under(claim("stale", long), g.Fence), selling), postgres.ErrStale, "another claim")
		require.ErrorIs(t, l.InTx(t.Context(), new(guard.Leases), selling), postgres.ErrStale, "no claim")
		_, err := other.Release(t.Context(), second, driver.After{})
		require.NoError(t, err)
		require.ErrorIs(t, l.InTx(t.Context(), under(second, g.Fence), selling), postgres.ErrStale)
		require.Equal(t, before-1, remaining(t, db))
	})

	// The first holder reads 100 and is paused past its lease. If another one could read before the
	// first one commits, two sales would leave 99.
	for name, among := range map[string]int{"alone": 1, "shared": 2} {
		t.Run("nobody is granted the key before the transaction has ended: "+name, func(t *testing.T) {
			before := remaining(t, db)
			key := "paused " + name
			c := claim(key, long)
			first := mustAcquire(t, l, c)
			begun, proceed, ended := make(chan struct{}), make(chan struct{}), make(chan error)
			go func() {
				ended <- l.InTx(t.Context(), under(c, first.Fence), func(tx *sql.Tx) error {
					close(begun)
					<-proceed
					return sell(t.Context(), tx)
				})
			}()
			<-begun
			c.TTL = time.Millisecond
			held, err := l.Renew(t.Context(), c)
			require.NoError(t, err)
			require.True(t, held)
			time.Sleep(20 * time.Millisecond) // the lease expires
			next := claim(key, long)
			next.MaxHolders = among
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			_, err = other.TryAcquire(ctx, next)
			require.ErrorIs(t, err, driver.ErrStore, "the row is locked")
			close(proceed)
			require.NoError(t, <-ended)
			g := awaitGrant(t, other, next)
			require.Greater(t, g.Fence, first.Fence)
			require.NoError(t, other.InTx(t.Context(), under(next, g.Fence), selling))
			require.Equal(t, before-2, remaining(t, db))
		})
	}

	t.Run("renewals and the release do not wait for the transaction", func(t *testing.T) {
		c := claim("renewed", long)
		g := mustAcquire(t, l, c)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		require.NoError(t, l.InTx(ctx, under(c, g.Fence), func(tx *sql.Tx) error {
			for range 3 {
				held, err := l.Renew(ctx, c)
				require.NoError(t, err)
				require.True(t, held)
				driver.Await(ctx, l, driver.OpRenew, []driver.Claim{c}, driver.After{}, func(_ int, a driver.Answer, err error) {
					require.NoError(t, err)
					require.True(t, a.Held)
				})
			}
			require.NoError(t, other.CheckFence(ctx, tx, under(c, g.Fence)))
			held, err := l.Release(ctx, c, driver.After{})
			require.NoError(t, err)
			require.True(t, held)
			return nil
		}))
	})

	// As by hand-offs inside of the process, which the store does not know.
	for name, among := range map[string]int{"alone": 1, "limit": 3} {
		t.Run("a reserved fence replaces the one before: "+name, func(t *testing.T) {
			c, g := reserving(t, l, "handed off "+name, among)
			require.NoError(t, l.InTx(t.Context(), under(c, g.Fence), selling))
			require.NoError(t, l.InTx(t.Context(), under(c, g.Fence+2), selling))
			require.NoError(t, l.InTx(t.Context(), under(c, g.Fence+2), selling))
			for _, fence := range []uint64{g.Fence, g.Fence + 1, g.Fence + uint64(g.Reserved) + 1} {
				require.ErrorIs(t, l.InTx(t.Context(), under(c, fence), selling), postgres.ErrStale)
			}
		})
	}

	t.Run("InTx needs one connection after a hand-off", func(t *testing.T) {
		one := open(t, dsn)
		one.SetMaxOpenConns(1)
		alone := postgres.New(one)
		c, g := reserving(t, alone, "one connection", 1)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		require.NoError(t, alone.InTx(ctx, under(c, g.Fence+1), func(tx *sql.Tx) error { return sell(ctx, tx) }))
		require.ErrorIs(t, alone.InTx(ctx, under(c, g.Fence), selling), postgres.ErrStale)
	})

	// Each of them has a fence, of which the store knows the first and the last.
	t.Run("readers that share one lease write under their fences", func(t *testing.T) {
		g, err := guard.New(l, guard.WithTTL(time.Minute), guard.WithShared(), guard.WithNamespace("ns"))
		require.NoError(t, err)
		defer func() { require.NoError(t, g.Close(context.Background())) }()
		readers := make([]*guard.Lease, 4)
		require.Eventually(t, func() bool { // a new key reserves no fences for 131 ms
			for i := range readers {
				readers[i], err = g.Acquire(t.Context(), "readers")
				require.NoError(t, err)
			}
			if readers[0].ID() == readers[3].ID() {
				return true
			}
			for _, r := range readers {
				require.NoError(t, r.Release(t.Context()))
			}
			return false
		}, 20*time.Second, 10*time.Millisecond)
		for range 2 {
			for _, r := range readers {
				require.NoError(t, l.InTx(t.Context(), r, selling))
			}
			c := readers[3].Claims()[0]
			require.Equal(t, "ns::readers", c.Key)
			held, err := l.Renew(t.Context(), c) // under the last of the fences
			require.NoError(t, err)
			require.True(t, held)
		}
		beyond := readers[3].Claims()[0]
		require.ErrorIs(t, l.InTx(t.Context(), under(beyond, readers[0].Fence()-1), selling), postgres.ErrStale)
		require.ErrorIs(t, l.InTx(t.Context(), under(beyond, beyond.Fence+1<<20), selling), postgres.ErrStale)
		for _, r := range readers {
			require.NoError(t, r.Release(t.Context()))
		}
		require.ErrorIs(t, l.InTx(t.Context(), readers[3], selling), postgres.ErrStale)
	})

	t.Run("leases on several keys are checked together", func(t *testing.T) {
		g, err := guard.New(l)
		require.NoError(t, err)
		defer func() { require.NoError(t, g.Close(context.Background())) }()
		all, err := g.AcquireAll(t.Context(), []string{"both 1", "both 2"})
		require.NoError(t, err)
		require.NoError(t, l.InTx(t.Context(), all, selling))
		broken, err := other.Break(t.Context(), "both 1", all.Claims()[0].ID, driver.Break{ID: rand.Text(), Now: true})
		require.NoError(t, err)
		require.True(t, broken)
		require.ErrorIs(t, l.InTx(t.Context(), all, selling), postgres.ErrStale)
		require.ErrorIs(t, all.Release(t.Context()), guard.ErrLost)
	})

	t.Run("DoAll that joins a key leaves no lease stale", func(t *testing.T) {
		g, err := guard.New(l)
		require.NoError(t, err)
		defer func() { require.NoError(t, g.Close(context.Background())) }()
		inTx := func(ctx context.Context) error {
			lease, _ := guard.FromContext(ctx)
			return l.InTx(ctx, lease, selling)
		}
		require.NoError(t, g.Do(t.Context(), "nested 2", func(outer context.Context) error {
			require.NoError(t, inTx(outer))
			require.NoError(t, g.DoAll(outer, []string{"nested 1", "nested 2", "nested 3"}, func(ctx context.Context) error {
				require.NoError(t, inTx(outer))
				require.NoError(t, inTx(ctx))
				lease, _ := guard.FromContext(ctx)
				require.Len(t, lease.Claims(), 3)
				return nil
			}))
			return inTx(outer)
		}))
	})

	for name, end := range map[string]func(n *nested){
		"was cancelled in AcquireEnd of the first key": func(n *nested) { n.cancelAt(1) },
		"was cancelled in AcquireEnd of the last key":  func(n *nested) { n.cancelAt(2) },
		"has failed as the renewal was lost":           func(n *nested) { n.store.lost.Store(true) },
		"has failed as the answer was lost":            func(n *nested) { n.store.late.Store(true) },
		"has failed as a key is busy":                  func(n *nested) { n.keys = append(n.keys, "busy") },
		"has failed in its function":                   func(n *nested) { n.err = errors.New("failed") },
	} {
		t.Run("the lease around DoAll is not stale after DoAll "+name, func(t *testing.T) {
			busy := claim("busy", long)
			mustAcquire(t, l, busy)
			defer func() { _, _ = l.Release(context.Background(), busy, driver.After{}) }()
			n := newNested(t, l, name)
			end(n)
			n.play(func(lease *guard.Lease) {
				require.NoError(t, l.InTx(t.Context(), lease, selling))
				tx, err := db.BeginTx(t.Context(), nil)
				require.NoError(t, err)
				defer func() { _ = tx.Rollback() }()
				require.NoError(t, l.CheckFence(t.Context(), tx, lease))
			})
		})
	}

	t.Run("each claim that shares a key has its fence", func(t *testing.T) {
		var grants []driver.Answer
		var claims []driver.Claim
		for range 2 {
			c := claim("shared", long)
			c.MaxHolders = 2
			claims = append(claims, c)
			grants = append(grants, mustAcquire(t, l, c))
		}
		for i, g := range grants {
			require.NoError(t, l.InTx(t.Context(), under(claims[i], g.Fence), selling))
		}
		_, err := l.Release(t.Context(), claims[0], driver.After{Keep: long})
		require.NoError(t, err)
		require.ErrorIs(t, l.InTx(t.Context(), under(claims[0], grants[0].Fence), selling), postgres.ErrStale)
		require.NoError(t, l.InTx(t.Context(), under(claims[1], grants[1].Fence), selling))
	})

	t.Run("a run that has lost its lease rolls back", func(t *testing.T) {
		before := remaining(t, db)
		g, err := guard.New(l, guard.WithTTL(time.Second))
		require.NoError(t, err)
		defer func() { require.NoError(t, g.Close(context.Background())) }()
		err = g.Do(t.Context(), "operator", func(ctx context.Context) error {
			lease, _ := guard.FromContext(ctx)
			run := func(tx *sql.Tx) error { return sell(ctx, tx) }
			if err := l.InTx(ctx, lease, run); err != nil {
				return err
			}
			broken, err := other.Break(ctx, lease.Key(), lease.ID(), driver.Break{ID: rand.Text(), Now: true})
			if err != nil || !broken {
				return errors.Join(err, errors.New("not broken"))
			}
			return l.InTx(ctx, lease, run)
		})
		require.ErrorIs(t, err, postgres.ErrStale)
		require.Equal(t, before-1, remaining(t, db))
	})
}

// reserving acquires the key with reserved fences: a new key reserves none for 131 ms.
func reserving(t testing.TB, l *postgres.Locker, key string, among int) (c driver.Claim, g driver.Answer) {
	t.Helper()
	require.Eventually(t, func() bool {
		c = claim(key, long)
		c.Fences.Reserve, c.MaxHolders = 3, among
		g = mustAcquire(t, l, c)
		if g.Reserved < 2 {
			_, err := l.Release(t.Context(), c, driver.After{})
			require.NoError(t, err)
		}
		return g.Reserved >= 2
	}, 20*time.Second, 10*time.Millisecond)
	return c, g
}

// A losingStore loses the next renewal of a key, or the answer to it.
type losingStore struct {
	*postgres.Locker
	key        string
	lost, late atomic.Bool // the renewal, or its answer
}

func (s *losingStore) Renew(ctx context.Context, c driver.Claim) (held bool, err error) {
	switch {
	case c.Key == s.key && s.lost.Swap(false):
		return false, errors.New("lost")
	case c.Key == s.key && s.late.Swap(false):
		_, err := s.Locker.Renew(ctx, c)
		return false, cmp.Or(err, errors.New("no answer"))
	}
	return s.Locker.Renew(ctx, c)
}

func (s *losingStore) Start(
	ctx context.Context, op driver.Op, claims []driver.Claim, after driver.After, done func(i int, a driver.Answer, err error),
) {
	driver.Each{Locker: s}.Start(ctx, op, claims, after, done)
}

// A nested is a call for several keys inside of a run that holds one of them.
type nested struct {
	t     *testing.T
	store *losingStore
	keys  []string // the second one is held
	err   error    // of the function
	end   func(cancel func())
}

func newNested(t *testing.T, l *postgres.Locker, key string) *nested {
	keys := []string{key + " 1", key + " 2", key + " 3"}
	return &nested{t: t, store: &losingStore{Locker: l, key: keys[1]}, keys: keys, end: func(func()) {}}
}

// cancelAt has the context of the call end in the hook AcquireEnd of its n-th key.
func (n *nested) cancelAt(key int32) {
	var ends atomic.Int32
	n.end = func(cancel func()) {
		if ends.Add(1) == key {
			cancel()
		}
	}
}

// play makes the call, which fails, and uses the lease around it.
func (n *nested) play(use func(lease *guard.Lease)) {
	g, err := guard.New(n.store)
	require.NoError(n.t, err)
	defer func() { require.NoError(n.t, g.Close(context.Background())) }()
	var last uint64
	require.NoError(n.t, g.Do(n.t.Context(), n.keys[1], func(outer context.Context) error {
		ctx, cancel := context.WithCancel(outer)
		defer cancel()
		hook := guard.Hook{AcquireEnd: func(context.Context, guard.AcquireEvent) { n.end(cancel) }}
		require.Error(n.t, g.DoAll(ctx, n.keys, func(context.Context) error { return n.err }, guard.WithHook(hook)))
		lease, _ := guard.FromContext(outer)
		require.True(n.t, lease.Valid())
		use(lease)
		last = lease.Fence()
		return nil
	}))
	require.NoError(n.t, g.Do(n.t.Context(), n.keys[1], func(ctx context.Context) error {
		require.Greater(n.t, guard.Fence(ctx), last)
		return nil
	}))
}
