package guardtest_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

// A coarse is a Locker that counts in whole seconds, and frees keys half a second late.
type coarse struct{ driver.Wrapper }

const (
	halfSecond = 500 * time.Millisecond
	// coarsely is how much later than its TTL a coarse store may free a key.
	coarsely = time.Second + halfSecond
)

func roundUp(d time.Duration) time.Duration {
	return (d + time.Second - 1).Truncate(time.Second) + halfSecond
}

func (l coarse) TryAcquire(ctx context.Context, c driver.Claim) (driver.Answer, error) {
	c.TTL = roundUp(c.TTL)
	answer, err := l.Wrapper.TryAcquire(ctx, c)
	if answer.Left > 0 {
		answer.Left = max(answer.Left-coarsely, 1)
	}
	return answer, err
}

func (l coarse) Renew(ctx context.Context, c driver.Claim) (bool, error) {
	c.TTL = roundUp(c.TTL)
	return l.Wrapper.Renew(ctx, c)
}

func (l coarse) Release(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
	if after.Keep > 0 {
		after.Keep = roundUp(after.Keep)
	}
	return l.Wrapper.Release(ctx, c, after)
}

func coarseBackend() guardtest.Backend {
	return guardtest.Backend{
		New:    func(testing.TB) guard.Locker { return coarse{driver.Wrapper{Locker: memory.New()}} },
		Bubble: true, MinTTL: time.Second, Late: coarsely,
	}
}

func TestRun_passesABackendThatFreesKeysLate(t *testing.T) { guardtest.Run(t, coarseBackend()) }

func TestRun_checksThatKeysAreFreeUnlessTheBackendIsLate(t *testing.T) {
	b := coarseBackend()
	b.Late = 0
	require.True(t, runCheck(t, b, "an expired claim is not renewed or released").Failed())
}

func TestRun_runsChecksInParallel(t *testing.T) {
	b := coarseBackend()
	b.Bubble, b.MinTTL, b.Late, b.Parallel = false, 0, 0, true
	b.New = func(testing.TB) guard.Locker { return memory.New() }
	guardtest.Run(t, b)
}
