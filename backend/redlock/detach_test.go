package redlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/redlock"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

type ctxKey struct{}

func TestTryAcquire_itsCallsOutliveTheCallerAndEndInTime(t *testing.T) {
	for name, c := range map[string]struct {
		callers, ttl time.Duration // the caller's deadline
		ends         time.Duration // when the context of the call that hangs does
		answers      time.Duration // when that call does
		err          error
	}{
		"with the TTL":                 {callers: time.Hour, ttl: time.Minute, ends: time.Minute, answers: time.Hour, err: context.DeadlineExceeded},
		"at the caller's deadline":     {callers: time.Second, ttl: time.Minute, ends: time.Second, answers: time.Hour, err: context.DeadlineExceeded},
		"when all nodes have answered": {callers: time.Hour, ttl: time.Minute, ends: time.Second, answers: time.Second, err: context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, _ *redlock.Locker, boxes []*box) {
				var call context.Context
				slow := &guardtest.Scripted{Inner: boxes[2], OnAcquire: func(ctx context.Context, n int, claim driver.Claim) (driver.Answer, error) {
					if n == 1 {
						call = ctx
						select {
						case <-ctx.Done():
							return driver.Answer{}, ctx.Err()
						case <-time.After(c.answers):
						}
					}
					return boxes[2].TryAcquire(ctx, claim)
				}}
				start := time.Now()
				ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), ctxKey{}, "v"), c.callers)
				claim := claimOf("k", "a")
				claim.TTL = c.ttl
				a, err := redlock.New([]guard.Locker{boxes[0], boxes[1], slow}).TryAcquire(ctx, claim)
				require.NoError(t, err)
				require.Equal(t, driver.Granted, a.State)
				cancel() // the caller leaves
				synctest.Wait()
				require.Equal(t, "v", call.Value(ctxKey{}))
				require.NoError(t, call.Err())
				<-call.Done()
				require.Equal(t, c.ends, time.Since(start))
				require.ErrorIs(t, call.Err(), c.err)
			})
		})
	}
}
