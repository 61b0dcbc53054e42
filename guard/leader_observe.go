package guard

import (
	"context"
	"errors"
	"iter"
	"time"
)

// leaderLook is how often Observe asks the store at least.
const leaderLook = time.Second

// A Leader is who leads, as the store shows it. The zero Leader means that nobody leads.
type Leader struct {
	// ID is the random ID of the leader's lease (Lease.ID).
	ID string
	// Label identifies the leader, see WithLabel. It comes from the store: treat it as untrusted.
	Label string
	// Fence is the number of the term. It is 0 if the store does not know it.
	Fence uint64
	// Since is when the term began, by the clock of the store, or the zero Time if it is unknown.
	Since time.Time
	// Left is the time until the lease ends if it is not renewed. It is negative if the store
	// cannot tell.
	Left time.Duration
}

// Leader asks the store who leads now. It returns the zero Leader if nobody does. It does not need
// Run, and bounds the call by 5 s. The error is that of ctx or a *StoreError. It is
// errors.ErrUnsupported if the backend shows no keys (driver.Inspector).
func (c *Candidate) Leader(ctx context.Context) (Leader, error) {
	if c.guard.inspector == nil {
		return Leader{}, errNoInspector
	}
	info, err := (&boundedInspector{c.guard, c.set}).Show(ctx, c.key)
	if err != nil {
		return Leader{}, err
	}
	for _, h := range info.Holders {
		if !h.Kept {
			return Leader{ID: h.ID, Label: h.Label, Fence: h.Fence, Since: h.Since(), Left: h.Left}, nil
		}
	}
	return Leader{}, nil
}

// Observe returns who leads, and then each change, also that nobody does. It asks the store when
// the backend notifies that the key is free, and about once per second. A Leader that led for less
// than that may be left out.
//
// An error of Leader comes once, with the zero Leader. Observe goes on after it, and returns who
// leads when the store answers again. It ends with ctx and when the Guard is closed, and after
// errors.ErrUnsupported.
func (c *Candidate) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		free := make(chan struct{}, 1)
		defer c.guard.Adapter().Watch(c.key, func(context.Context) { signal(free) }, c.opts...)()
		var last Leader
		known, failed := false, false
		for ctx.Err() == nil && !c.guard.isClosed() {
			l, err := c.Leader(ctx)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil && !failed:
				if !yield(Leader{}, err) || errors.Is(err, errors.ErrUnsupported) {
					return
				}
			case err == nil && (!known || !l.same(last)):
				if !yield(l, nil) {
					return
				}
			}
			last, known, failed = l, err == nil, err != nil
			c.guard.sleep(c.guard.clock.Now()+min(leaderLook, c.set.ttl/4), free, ctx.Done(), c.guard.closing.Done())
		}
	}
}

// same reports whether two Leaders are of one term. A lease that is handed off inside of a
// process keeps its ID, and the store knows its new fence later.
func (l Leader) same(other Leader) bool { return l.ID == other.ID && l.Fence == other.Fence }
