package guard_test

import (
	"context"
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// batches is a store in memory that counts batches of renewals.
type batches struct {
	*memory.Locker
	sent, claims atomic.Int64
	goroutines   atomic.Int64 // the largest number seen
}

func (b *batches) Start(
	ctx context.Context, op driver.Op, claims []driver.Claim, after driver.After, done func(i int, a driver.Answer, err error),
) {
	if op == driver.OpRenew {
		b.sent.Add(1)
		b.claims.Add(int64(len(claims)))
		b.goroutines.Store(max(b.goroutines.Load(), int64(runtime.NumGoroutine())))
	}
	startNow(ctx, b.Locker, op, claims, after, done)
}

// startNow makes the calls in the caller's goroutine.
func startNow(
	ctx context.Context, l guard.Locker, op driver.Op, claims []driver.Claim, after driver.After, done func(i int, a driver.Answer, err error),
) {
	for i, c := range claims {
		a, err := driver.Call(ctx, l, op, c, after)
		done(i, a, err)
	}
}

func TestSchedule_needsAConstantNumberOfGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &batches{Locker: memory.New()}
		g := newGuard(t, store, guard.WithTTL(ttl))
		first := hold(t, g, "first")
		synctest.Wait()
		require.Equal(t, 1, goroutinesOfGuards())
		before := runtime.NumGoroutine()
		leases := make([]*guard.Lease, 10_000)
		for i := range leases {
			leases[i] = hold(t, g, fmt.Sprint("k", i))
		}
		synctest.Wait()
		require.Equal(t, 1, goroutinesOfGuards(), "a held lease has no goroutine")
		const rounds = 2
		time.Sleep(rounds * ttl)
		for _, lease := range leases {
			require.True(t, lease.Valid())
		}
		require.GreaterOrEqual(t, store.claims.Load(), int64(rounds*3*len(leases)*9/10))
		require.LessOrEqual(t, 100*store.sent.Load(), store.claims.Load(), "a batch has at least a hundred claims on average")
		require.Less(t, store.goroutines.Load(), int64(before+300), "renewals need few goroutines")
		for _, lease := range append(leases, first) {
			require.NoError(t, lease.Release(t.Context()))
		}
	})
}

func TestSchedule_renewsInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &batches{Locker: memory.New()}
		g := newGuard(t, store, guard.WithTTL(ttl))
		var all []*guard.Lease
		for i := range 1000 {
			all = append(all, hold(t, g, fmt.Sprint("k", i)))
		}
		time.Sleep(10 * ttl)
		require.Greater(t, store.claims.Load(), 50*store.sent.Load())
		for _, lease := range all {
			require.NoError(t, lease.Release(t.Context()))
		}
	})
}

// forgetful answers twice to renewals of the key a, and never to those of other keys.
type forgetful struct{ *memory.Locker }

func (f forgetful) Start(
	ctx context.Context, op driver.Op, claims []driver.Claim, after driver.After, done func(i int, a driver.Answer, err error),
) {
	startNow(ctx, f.Locker, op, claims, after, func(i int, a driver.Answer, err error) {
		if claims[i].Key == "a" {
			done(i, a, err)
			done(i, driver.Answer{}, nil)
		}
	})
}

func TestSchedule_takesTheFirstAnswerToEachClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, forgetful{memory.New()}, guard.WithTTL(ttl))
		a, b := hold(t, g, "a"), hold(t, g, "b")
		time.Sleep(10 * ttl)
		require.NoError(t, a.Release(t.Context()))
		lost := as[*guard.LostError](t, b.Release(t.Context()))
		require.Equal(t, guard.LossExpired, lost.Reason)
		require.ErrorContains(t, lost.Renew, "no answer")
	})
}

func TestSchedule_endsItsGoroutineIfNothingIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := openGuard(t, memory.New())
		for range 3 {
			require.NoError(t, g.Do(t.Context(), "k", nothing))
			synctest.Wait()
			require.Equal(t, 1, goroutinesOfGuards())
			time.Sleep(time.Second)
			synctest.Wait()
			require.Zero(t, goroutinesOfGuards(), "the goroutine ends without Close")
		}
	})
}

// goroutinesOfGuards returns how many goroutines of Guards are running in this bubble. It reads
// the stacks, because runtime.NumGoroutine still counts a goroutine for a moment after its end.
func goroutinesOfGuards() (n int) {
	stacks := make([]byte, 1<<20)
	all := strings.Split(string(stacks[:runtime.Stack(stacks, true)]), "\n\n")
	bubble := inThisBubble.FindString(all[0]) // the first stack is our own
	for _, stack := range all {
		if strings.Contains(stack, bubble) && strings.Contains(stack, "created by github.com/seed-1795987d/onerun/guard.") {
			n++
		}
	}
	return n
}

var inThisBubble = regexp.MustCompile(`synctest bubble \d+\]`)
