package guardhttp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-1795987d/onerun/guard"
)

// shadowPatience is for how long a request in shadow mode waits for the store.
const shadowPatience = 250 * time.Millisecond

// shadow runs the handler, and finds out what would have become of the request: it may have been
// found out before.
func (q *exchange) shadow() {
	if q.outcome.Result != "" {
		q.bare()
		return
	}
	lease, err := q.shadowLease()
	if err != nil {
		q.outcome.Result, _, _, q.outcome.Err = q.judge(err)
		q.bare()
		return
	}
	q.outcome.Result, q.outcome.Fence = ResultRan, lease.Fence()
	returned := false
	defer func() {
		if !returned {
			_ = q.giveBack(lease.Release) // a panic is on its way up
		}
	}()
	q.call(q.unled(), recording{most: q.m.records()})
	returned = true
	record := q.conclude()
	if record == nil {
		q.outcome.Err = q.giveBack(lease.Release)
		return
	}
	set := lease.SetRecord(q.m.sealer.seal(record.encode(), q.stored))
	if q.outcome.Err = errors.Join(set, q.giveBack(lease.Complete)); q.outcome.Err == nil {
		q.outcome.Kept = q.kept
	}
}

func (q *exchange) shadowLease() (*guard.Lease, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(q.r.Context()), q.m.patience)
	defer cancel()
	lease, err := q.m.guard.Acquire(ctx, q.stored, q.m.once...)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("%w within %v: %w", guard.ErrStore, q.m.patience, err)
	}
	return lease, err
}

func (q *exchange) giveBack(how func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(q.r.Context()), q.m.patience)
	defer cancel()
	return how(ctx)
}
