package sqltest

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// A client with one connection renews while callers claim: a long key, and one that they wait for.
func oneInThePool(t *testing.T, s *Store) {
	l, db := s.Migrated(t)
	db.SetMaxOpenConns(1)
	g, err := guard.New(l, guard.WithTTL(Long), guard.WithWait(20*time.Second))
	require.NoError(t, err)
	lease, err := g.Acquire(t.Context(), strings.Repeat("k", driver.MaxKey))
	require.NoError(t, err)
	sum := 0
	var callers sync.WaitGroup
	var ends atomic.Bool
	for i := range 12 {
		callers.Go(func() {
			for !ends.Load() {
				key := []string{"sum", strings.Repeat("k", i)}[i%2]
				require.NoError(t, g.Do(t.Context(), "for "+key, func(context.Context) error {
					if key == "sum" {
						sum++ // the race detector would see two at a time
					}
					return nil
				}))
			}
		})
	}
	for range 20 {
		held, err := l.Renew(Within(t, 10*time.Second), lease.Claims()[0])
		assert.NoError(t, err)
		assert.True(t, held)
	}
	ends.Store(true)
	callers.Wait()
	require.Positive(t, sum)
	require.NoError(t, l.InTx(t.Context(), lease, func(*sql.Tx) error { return nil }))
	require.NoError(t, lease.Release(t.Context()))
	require.NoError(t, g.Close(t.Context()))
}

// Transactions of the application leave a connection to renewals, and other calls are answered.
func transactionsStarveNoRenewals(t *testing.T, s *Store) {
	const connections = 3
	l, db := s.Migrated(t)
	g, err := guard.New(l, guard.WithTTL(20*time.Second))
	require.NoError(t, err)
	lease, err := g.Acquire(t.Context(), "k")
	require.NoError(t, err)
	db.SetMaxOpenConns(connections) // it can change at any time
	var all sync.WaitGroup
	inside := make(chan struct{}, 2*connections)
	leave := make(chan struct{})
	for range 2 * connections {
		all.Go(func() {
			err := l.InTx(t.Context(), lease, func(*sql.Tx) error {
				inside <- struct{}{}
				<-leave
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	for range connections - 1 {
		<-inside
	}
	held, err := l.Renew(Within(t, 10*time.Second), lease.Claims()[0])
	require.NoError(t, err)
	require.True(t, held)
	require.NoError(t, g.Do(Within(t, 10*time.Second), "other", func(context.Context) error { return nil }))
	require.Empty(t, inside)
	close(leave)
	all.Wait()
	require.NoError(t, lease.Release(t.Context()))
	require.NoError(t, g.Close(t.Context()))
}

// A new key has no row that a claim could lock, and an old one has a row that all have read.
func oneOfThoseThatMeet(t *testing.T, s *Store) {
	const claimants = 4
	l, db := s.Migrated(t)
	db.SetMaxOpenConns(claimants)
	rounds := 100
	if s.OneWriter {
		rounds = 20 // its races cannot be close
	}
	for i := range rounds {
		key := fmt.Sprint("met ", i/2)
		granted := make(chan driver.Claim, claimants)
		var all sync.WaitGroup
		for range claimants {
			all.Go(func() {
				c := Claim(key, Long)
				a, err := l.TryAcquire(t.Context(), c)
				if err == nil && a.State == driver.Granted {
					granted <- c
				}
			})
		}
		all.Wait()
		require.Len(t, granted, 1)
		MustRelease(t, l, <-granted)
	}
}

// WaiterIsServed checks that a waiter of another process is granted a key soon after its release,
// long before half of the TTL.
func WaiterIsServed(t *testing.T, holds, waits Locker) {
	var guards [2]*guard.Guard
	for i, l := range []Locker{holds, waits} {
		g, err := guard.New(l, guard.WithTTL(Long))
		require.NoError(t, err)
		guards[i] = g
		t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
	}
	for i := range 4 {
		holder, waiter := guards[i%2], guards[1-i%2]
		lease, err := holder.Acquire(t.Context(), "waited for")
		require.NoError(t, err)
		var served time.Time
		done := make(chan error)
		go func() {
			done <- waiter.Do(t.Context(), "waited for", func(context.Context) error {
				served = time.Now()
				return nil
			}, guard.WithWait(15*time.Second))
		}()
		time.Sleep(300 * time.Millisecond) // the waiter has subscribed, or looks
		released := time.Now()
		require.NoError(t, lease.Release(t.Context()))
		require.NoError(t, <-done)
		t.Logf("served after %v", served.Sub(released))
	}
}

// A row that another transaction has locked delays no other renewal.
func lockedRows(t *testing.T, s *Store) {
	l, db := s.Migrated(t)
	var claims []driver.Claim
	for _, key := range []string{"k0", "k1", "k2", "k3", "k4"} {
		claims = append(claims, MustAcquire(t, l, Claim(key, Long)).Claim)
	}
	freed := MustAcquire(t, l, Claim("freed", Long))
	MustRelease(t, l, freed.Claim)
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer tx.Rollback()
	_, err = tx.ExecContext(t.Context(), s.LockRows)
	require.NoError(t, err)
	if s.BusyAtOnce {
		RequireState(t, driver.Busy, l, "freed")
	}
	ctx, cancel := context.WithCancel(t.Context())
	others := len(claims) - 1
	driver.Await(ctx, l, driver.OpRenew, claims, driver.After{}, func(i int, a driver.Answer, err error) {
		if i == 3 {
			RequireKind(t, driver.KindCanceled, err)
			return
		}
		require.NoError(t, err)
		require.True(t, a.Held)
		require.NoError(t, ctx.Err(), "others do not wait")
		if others--; others == 0 {
			cancel()
		}
	})
	require.NoError(t, tx.Rollback())
	require.Greater(t, AwaitGrant(t, l, Claim("freed", Long)).Fence, freed.Fence)
}
