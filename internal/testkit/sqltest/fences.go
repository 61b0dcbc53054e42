package sqltest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// A shop is two processes that sell under leases, by transactions in the database of the leases.
// Its stock is a number that a sale reads and writes in two steps.
type shop struct {
	*testing.T
	store    *Store
	here     Locker
	there    Locker
	db       *sql.DB // of here
	expected int     // what is left of the stock
}

func (s *shop) sell(tx *sql.Tx) error {
	var n int
	if err := tx.QueryRowContext(s.Context(), `SELECT remaining FROM stock`).Scan(&n); err != nil {
		return err
	}
	_, err := tx.ExecContext(s.Context(), fmt.Sprint(`UPDATE stock SET remaining = `, n-1))
	return err
}

// sells sells one under a lease that is held.
func (s *shop) sells(l Locker, lease Leased) {
	s.Helper()
	require.NoError(s, l.InTx(s.Context(), lease, s.sell))
	s.sold(1)
}

// refuses tries to sell under leases that are not held.
func (s *shop) refuses(l Locker, leases ...Leased) {
	s.Helper()
	for _, lease := range leases {
		require.ErrorIs(s, l.InTx(s.Context(), lease, s.sell), s.store.Stale)
	}
	s.sold(0)
}

// sold asserts that so many were sold since the last time.
func (s *shop) sold(n int) {
	s.Helper()
	s.expected -= n
	require.Equal(s, s.expected, Number(s, s.db, `SELECT remaining FROM stock`))
}

// newGuard returns a Guard of the first process.
func (s *shop) newGuard(opts ...guard.Option) *guard.Guard {
	g, err := guard.New(s.here, opts...)
	require.NoError(s, err)
	s.Cleanup(func() { require.NoError(s, g.Close(context.Background())) })
	return g
}

// Fences checks that a fence is checked in the transaction of the user. The check lasts until the
// transaction ends: no other one can sell what a late holder is about to sell.
func Fences(t *testing.T, store *Store) {
	here, db := store.Migrated(t)
	there, _ := store.Migrated(t)
	Exec(t, db, `CREATE TABLE stock AS SELECT 100 AS remaining`)
	left := 100
	for _, row := range []struct {
		name string
		run  func(s *shop)
	}{
		{"a write under a fence that is not the newest does not commit", staleFences},
		{"nobody is granted the key before the transaction has ended", func(s *shop) { keepsAway(s, 1) }},
		{"nobody shares the key before the transaction has ended", func(s *shop) { keepsAway(s, 2) }},
		{"a transaction that has read before cannot pass for a holder", oldSnapshot},
		{"renewals and the release do not wait for the transaction", renewsMeanwhile},
		{"a reserved fence replaces the one before", func(s *shop) { reserved(s, 1) }},
		{"a reserved fence of a shared key replaces the one before", func(s *shop) { reserved(s, 3) }},
		{"InTx needs one connection after a hand-off", oneConnection},
		{"calls check their own fences after hand-offs", handsOff},
		{"readers that share one lease write under their fences", readers},
		{"each claim that shares a key has its fence", sharers},
		{"leases on several keys are checked together", severalKeys},
		{"DoAll that joins a key leaves no lease stale", joins},
		{"the lease around a DoAll that fails is not stale", failsAround},
		{"a run that has lost its lease rolls back", losesItsLease},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := &shop{t, store, here, there, db, left}
			row.run(s)
			left = Number(t, db, `SELECT remaining FROM stock`)
		})
	}
}

func staleFences(s *shop) {
	old := Claim("stale", 50*time.Millisecond)
	first := MustAcquire(s, s.here, old)
	time.Sleep(60 * time.Millisecond)
	s.refuses(s.here, first) // it has expired
	second := AwaitGrant(s, s.there, Claim("stale", Long))
	s.refuses(s.here, first)
	s.sells(s.there, second)
	for _, fence := range []uint64{0, second.Fence - 1, second.Fence + 1, second.Fence + 1<<40} {
		s.refuses(s.here, Under(second.Claim, fence))
	}
	s.refuses(s.here, Under(Claim("unknown", Long), second.Fence))
	s.refuses(s.here, Under(Claim("stale", Long), second.Fence)) // another claim
	s.refuses(s.here, new(guard.Leases))                         // no claim
	MustRelease(s, s.there, second.Claim)
	s.refuses(s.here, second)
}

// The first holder reads 100 and is paused past its lease. If another one could read before the
// first one commits, two sales would leave 99.
func keepsAway(s *shop, among int) {
	key := fmt.Sprint("paused ", among)
	next := Claim(key, Long)
	next.MaxHolders = among
	ttl := Long
	if s.store.OneWriter {
		ttl = 500 * time.Millisecond
	}
	first := AwaitGrant(s, s.here, Claim(key, ttl))
	ends := time.Now().Add(ttl)
	err := s.here.InTx(s.Context(), first, func(tx *sql.Tx) error {
		if !s.store.OneWriter {
			c := first.Claim
			c.TTL = time.Millisecond
			MustRenew(s, s.here, c)
			ends = time.Now()
		}
		time.Sleep(time.Until(ends) + 20*time.Millisecond)
		for range 3 {
			if s.store.BusyAtOnce {
				RequireState(s, driver.Busy, s.there, key)
				continue
			}
			_, err := s.there.TryAcquire(Within(s, 200*time.Millisecond), next)
			require.ErrorIs(s, err, driver.ErrStore)
		}
		return s.sell(tx)
	})
	if s.store.OneWriter && errors.Is(err, s.store.Stale) { // the lease had ended before
		keepsAway(s, among)
		return
	}
	require.NoError(s, err)
	s.sold(1)
	second := AwaitGrant(s, s.there, next)
	require.Greater(s, second.Fence, first.Fence)
	s.sells(s.there, second)
}

// A snapshot from before the newest grant shows the lease as it was.
func oldSnapshot(s *shop) {
	old := MustAcquire(s, s.here, Claim("snapshot", Long))
	tx, err := s.db.BeginTx(s.Context(), nil)
	require.NoError(s, err)
	defer tx.Rollback()
	var n int
	require.NoError(s, tx.QueryRowContext(s.Context(), `SELECT count(*) FROM onerun_leases`).Scan(&n))
	s.breaks(old)
	next := MustAcquire(s, s.there, Claim("snapshot", Long))
	s.store.requireOutdated(s, s.here.CheckFence(s.Context(), tx, old))
	require.NoError(s, tx.Rollback())
	s.sells(s.here, next)
}

// breaks ends a lease as an operator does.
func (s *shop) breaks(lease Leased) {
	s.Helper()
	c := lease.Claims()[0]
	broken, err := s.there.Break(s.Context(), c.Key, c.ID, driver.Break{ID: rand.Text(), Now: true})
	require.NoError(s, err)
	require.True(s, broken)
}

func renewsMeanwhile(s *shop) {
	if s.store.OneWriter {
		return // nothing else is written meanwhile
	}
	beside := MustAcquire(s, s.here, Claim("renewed, too", Long))
	lease := MustAcquire(s, s.here, Claim("renewed", Long))
	require.NoError(s, s.here.InTx(s.Context(), lease, func(tx *sql.Tx) error {
		for range 3 {
			MustRenew(s, s.here, lease.Claim)
			MustRenew(s, s.here, lease.Claim, beside.Claim)
		}
		for _, key := range []string{"renewec", "renewee", "renewed 2"} {
			MustAcquire(s, s.here, Claim(key, Long)) // the lock is of no other key
		}
		require.NoError(s, s.there.CheckFence(s.Context(), tx, lease))
		MustRelease(s, s.here, lease.Claim)
		return nil
	}))
}

// reserving acquires the key with reserved fences: a new key reserves none for 131 ms.
func reserving(t testing.TB, l Locker, key string, among int) (lease Lease) {
	t.Helper()
	require.Eventually(t, func() bool {
		c := Claim(key, Long)
		c.MaxHolders, c.Fences.Reserve = among, 100
		if lease = MustAcquire(t, l, c); lease.Reserved >= 3 {
			return true
		}
		MustRelease(t, l, c)
		return false
	}, 20*time.Second, 10*time.Millisecond)
	return lease
}

// Reserved fences are for hand-offs inside of the process, which the store does not know.
func reserved(s *shop, among int) {
	lease := reserving(s, s.here, fmt.Sprint("handed off ", among), among)
	for _, fence := range []uint64{lease.Fence, lease.Fence + 2, lease.Fence + 2} {
		s.sells(s.here, Under(lease.Claim, fence))
	}
	for _, fence := range []uint64{lease.Fence, lease.Fence + 1, lease.Fence + uint64(lease.Reserved) + 1} {
		s.refuses(s.here, Under(lease.Claim, fence))
	}
}

func oneConnection(s *shop) {
	db := s.store.Client(s)
	db.SetMaxOpenConns(1)
	alone := s.store.New(db)
	lease := reserving(s, alone, "one connection", 1)
	s.sells(alone, Under(lease.Claim, lease.Fence+1))
	s.refuses(alone, lease)
}

func handsOff(s *shop) {
	g := s.newGuard(guard.WithWait(20 * time.Second))
	const calls = 20
	done := make(chan error, calls)
	for range calls {
		go func() { done <- g.Do(s.Context(), "handed off", s.inTx) }()
	}
	for range calls {
		require.NoError(s, <-done)
	}
	s.sold(calls)
}

// inTx sells one under the lease of a context.
func (s *shop) inTx(ctx context.Context) error {
	lease, _ := guard.FromContext(ctx)
	return s.here.InTx(ctx, lease, s.sell)
}

// Each of them has a fence, of which the store knows the first and the last.
func readers(s *shop) {
	g := s.newGuard(guard.WithTTL(Long), guard.WithShared(), guard.WithNamespace("ns"))
	all := make([]*guard.Lease, 4)
	require.Eventually(s, func() bool { // a new key reserves no fences for 131 ms
		for i := range all {
			var err error
			all[i], err = g.Acquire(s.Context(), "readers")
			require.NoError(s, err)
		}
		if all[0].ID() == all[3].ID() {
			return true
		}
		for _, r := range all {
			require.NoError(s, r.Release(s.Context()))
		}
		return false
	}, 20*time.Second, 10*time.Millisecond)
	last := all[3].Claims()[0]
	require.Equal(s, "ns::readers", last.Key)
	for range 2 {
		for _, r := range all {
			s.sells(s.here, r)
		}
		MustRenew(s, s.here, last) // under the last of the fences
	}
	s.refuses(s.here, Under(last, all[0].Fence()-1), Under(last, last.Fence+1<<20))
	for _, r := range all {
		require.NoError(s, r.Release(s.Context()))
	}
	s.refuses(s.here, all[3])
}

func sharers(s *shop) {
	var leases []Lease
	for range 2 {
		c := Claim("shared", Long)
		c.MaxHolders = 2
		leases = append(leases, MustAcquire(s, s.here, c))
	}
	for _, lease := range leases {
		s.sells(s.here, lease)
	}
	_, err := s.here.Release(s.Context(), leases[0].Claim, driver.After{Keep: Long})
	require.NoError(s, err)
	s.refuses(s.here, leases[0])
	s.sells(s.here, leases[1])
}

func severalKeys(s *shop) {
	all, err := s.newGuard().AcquireAll(s.Context(), []string{"both 1", "both 2"})
	require.NoError(s, err)
	s.sells(s.here, all)
	s.breaks(all)
	s.refuses(s.here, all)
	require.ErrorIs(s, all.Release(s.Context()), guard.ErrLost)
}

func losesItsLease(s *shop) {
	err := s.newGuard().Do(s.Context(), "operator", func(ctx context.Context) error {
		if err := s.inTx(ctx); err != nil {
			return err
		}
		lease, _ := guard.FromContext(ctx)
		s.breaks(lease)
		return s.inTx(context.WithoutCancel(ctx))
	})
	require.ErrorIs(s, err, s.store.Stale)
	s.sold(1)
}
