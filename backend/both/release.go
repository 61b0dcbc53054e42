package both

import (
	"context"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// releaseTimeout bounds the release on the next side if ctx has no deadline.
const releaseTimeout = 2 * time.Second

// Release implements driver.Locker. It returns false if either side does, and an error if either
// does. It releases the next side first: a claim that then finds the old side free finds the next
// one free as well.
func (l *Locker) Release(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, driver.NewStoreError("both", driver.OpRelease, c.Key, err)
	}
	c = onSide(c)
	first, cancel := context.WithTimeout(ctx, half(ctx))
	held, err := l.sides[next].Release(first, c, after)
	cancel()
	if err != nil {
		err = l.sides[next].error(driver.OpRelease, c.Key, err)
	}
	oldHeld, oldErr := l.sides[old].Release(ctx, c, after)
	if oldErr != nil {
		err = l.sides[old].error(driver.OpRelease, c.Key, oldErr)
	}
	return held && oldHeld && err == nil, err
}

// half returns half of the time that ctx has left, so that the old side is released although the
// next one does not answer.
func half(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return time.Until(deadline) / 2
	}
	return releaseTimeout
}
