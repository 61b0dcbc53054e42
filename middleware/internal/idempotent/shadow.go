package idempotent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// shadowPatience is how long a call in shadow mode waits for the store.
const shadowPatience = 250 * time.Millisecond

// shadow runs the handler as if there were no middleware, and notes what would have happened to
// the call. If there is no lease, it has not run the handler.
func (c *Call) shadow(ctx context.Context) {
	c.Result = idempotency.Unavailable // if the store panics
	c.claims = c.Core.guard.Adapter().Defer()
	leads := true
	defer func() {
		if leads {
			c.giveBack()
		}
	}()
	lease, place, err := c.shadowLease(ctx)
	if err != nil {
		c.judge(err)
		leads = false
		return
	}
	c.ran, c.Result, c.Fence = true, idempotency.Ran, lease.Fence()
	leased, end := lease.Context(), lease.Release
	defer func() { // also if a panic is on its way up
		if err := c.end(leased, end); c.Err == nil {
			c.Err = err
		}
		if c.left.Keep != idempotency.KeepNothing && c.Err == nil {
			c.Kept = c.left.Keep
		}
	}()
	c.Err = lease.Run(leased, func(run context.Context) error {
		leased = run
		c.left = c.Transport.Handle(c.Run.Begin(ctx, c.RunKey))
		if c.left.Keep == idempotency.KeepNothing {
			if c.Core.quota != nil {
				c.Core.quota.giveBack(place, c.Scope)
			}
			return nil
		}
		err := lease.SetRecord(c.record())
		if err == nil {
			end = lease.Complete
		}
		return err
	})
}

// shadowLease acquires the lease of a call in shadow mode, and a place for its record.
func (c *Call) shadowLease(ctx context.Context) (lease *guard.Lease, place int64, err error) {
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.Core.Patience)
	defer cancel()
	lease, err = c.Core.guard.Acquire(within, c.Key, c.options(c.Core.first)...)
	if err == nil && c.Core.quota != nil {
		if place, err = c.Core.quota.take(within, c.Scope, c.Core.Adapter); err != nil {
			_ = c.end(ctx, lease.Release)
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w within %v: %w", guard.ErrStore, c.Core.Patience, err)
	}
	return lease, place, err
}

// end ends the lease of a call in shadow mode.
func (c *Call) end(ctx context.Context, how func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.Core.Patience)
	defer cancel()
	return how(ctx)
}
