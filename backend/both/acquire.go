package both

import (
	"context"
	"errors"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

var errGone = errors.New("the lease was lost before its fence was raised")

// TryAcquire implements driver.Locker.
func (l *Locker) TryAcquire(ctx context.Context, c driver.Claim) (driver.Answer, error) {
	if err := ctx.Err(); err != nil {
		return driver.Answer{}, driver.NewStoreError("both", driver.OpAcquire, c.Key, err)
	}
	c = onSide(c)
	ask, refused, by := l.gates.ask(c.Key), false, old
	defer func() { ask.answered(refused, by) }() // also if the backend panics
	grant, by, err := l.acquire(ctx, c)
	refused = err == nil && grant.State == driver.Busy
	return grant, err
}

// onSide returns the claim as it is made on each side: alone, and in no queue.
func onSide(c driver.Claim) driver.Claim {
	c.Queue, c.MaxHolders = driver.Unqueued, 0
	return c
}

// acquire asks the old side, and then the next one. by is the side that has refused the claim.
func (l *Locker) acquire(ctx context.Context, c driver.Claim) (grant driver.Answer, by int, err error) {
	first, err := l.sides[old].TryAcquire(ctx, c)
	if err != nil {
		return driver.Answer{}, old, l.sides[old].error(driver.OpAcquire, c.Key, err)
	}
	if first.State != driver.Granted {
		return first, old, nil
	}
	like := c
	if c.Fence == 0 { // the same fence saves the third call
		like.Fences = driver.FenceRequest{Hint: first.Fence, Reserve: first.Reserved}
	}
	asking, cancel := withMost(ctx)
	second, err := l.sides[next].TryAcquire(asking, like)
	cancel()
	if err != nil {
		kept := l.releaseSide(ctx, c, old)
		failed := l.sides[next].error(driver.OpAcquire, c.Key, err)
		failed.Revoked = failed.Revoked && kept == nil // otherwise the Guard cleans up
		return driver.Answer{}, next, failed
	}
	if second.State != driver.Granted {
		return second, next, l.releaseSide(ctx, c, old)
	}
	grant, err = l.level(ctx, c, first, second)
	if err != nil {
		_ = l.releaseSide(ctx, c, next)
		_ = l.releaseSide(ctx, c, old)
	}
	return grant, next, err
}

// level returns the grant of a claim that both sides have granted. It raises the lower fence, so
// that neither side ever grants the fence of the lease, or one that is reserved above it, to
// another claim.
func (l *Locker) level(ctx context.Context, c driver.Claim, first, second driver.Answer) (driver.Answer, error) {
	grant := driver.Answer{
		State: driver.Granted, Held: first.Held && second.Held,
		Fence: first.Fence, Reserved: min(first.Reserved, second.Reserved),
	}
	lower := next
	switch {
	case first.Fence == second.Fence:
		return grant, nil
	case first.Fence > second.Fence:
		grant.Reserved = first.Reserved
	default:
		grant.Fence, grant.Reserved, lower = second.Fence, second.Reserved, old
	}
	c.Fence, c.Fences.Reserve = grant.Fence, grant.Reserved
	held, err := l.sides[lower].Renew(ctx, c)
	if err == nil && !held { // a slow call has outlived the lease
		err = &driver.StoreError{Backend: "both", Op: driver.OpAcquire, Key: c.Key, Kind: driver.KindTimeout, Err: errGone}
	}
	if err != nil {
		return driver.Answer{}, l.sides[lower].error(driver.OpAcquire, c.Key, err)
	}
	return grant, nil
}

// withMost returns a context for most of the time that ctx has left. The rest is for releaseSide,
// if the next side does not answer.
func withMost(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, time.Until(deadline)*3/4)
}

// releaseSide releases a claim on a side that has granted it. After an error, the side may still
// hold the claim. The answer to the claim is then an error as well, so that the Guard cleans up.
func (l *Locker) releaseSide(ctx context.Context, c driver.Claim, at int) error {
	c.Fence, c.Fences = 0, driver.FenceRequest{}
	if _, err := l.sides[at].Release(ctx, c, driver.After{}); err != nil {
		return l.sides[at].error(driver.OpAcquire, c.Key, err)
	}
	return nil
}
