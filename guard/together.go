package guard

import (
	"context"
	"sync"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// A together collects the first requests of calls that are made at once for several keys, and sends
// them when all have come, or have left.
type together struct {
	guard *Guard
	send  func([]*firstRequest)

	mu       sync.Mutex
	missing  int
	requests []*firstRequest
}

// newTogether returns the first requests of n calls.
func (g *Guard) newTogether(n int, send func([]*firstRequest)) []*firstRequest {
	t := &together{guard: g, send: send, missing: n}
	all := make([]*firstRequest, n)
	for i := range all {
		all[i] = &firstRequest{together: t, done: make(chan struct{})}
	}
	return all
}

// A firstRequest is the first request of one of several calls. A nil one is sent by itself, as
// further requests are.
type firstRequest struct {
	together *together
	come     bool // or has left
	done     chan struct{}

	claim Claim
	grant Grant // of an acquire
	held  bool  // of a release
	err   error
}

// leave is called when the call has ended: the others do not wait for its request.
func (r *firstRequest) leave() {
	if r == nil || r.come {
		return
	}
	r.come = true
	r.together.arrive(nil)
}

// wait sends the claim with those of the others. It returns false if it is not the first request,
// and ctx's error if that ends before there is an answer.
func (r *firstRequest) wait(ctx context.Context, c Claim) (first bool, err error) {
	if r == nil || r.come {
		return false, nil
	}
	r.come, r.claim = true, c
	r.together.arrive(r)
	select {
	case <-r.done:
		return true, nil
	case <-ctx.Done():
		return true, ctx.Err()
	}
}

func (t *together) arrive(r *firstRequest) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r != nil {
		t.requests = append(t.requests, r)
	}
	if t.missing--; t.missing == 0 && len(t.requests) > 0 {
		t.guard.background.start(func() {
			t.guard.calls.Add(1)
			defer t.guard.calls.Add(-1)
			t.send(t.requests)
		})
	}
}

// tryAcquire is Guard.tryAcquire.
func (r *firstRequest) tryAcquire(ctx context.Context, g *Guard, c Claim) (Grant, error) {
	switch first, err := r.wait(ctx, c); {
	case err != nil:
		return Grant{}, err
	case first:
		return r.grant, r.err
	}
	return g.tryAcquire(ctx, c)
}

// release is Guard.releaseClaim.
func (r *firstRequest) release(ctx context.Context, g *Guard, c Claim, after After) (held bool, err error) {
	switch first, err := r.wait(ctx, c); {
	case err != nil:
		return false, err
	case first:
		return r.held, r.err
	}
	return g.releaseClaim(ctx, c, after)
}

// acquireTogether returns the first requests of n calls that acquire.
func (g *Guard) acquireTogether(ctx context.Context, set *settings, n int) []*firstRequest {
	return g.askTogether(ctx, requestTimeout(set.ttl), n, func(ctx context.Context, l driver.BatchAcquirer, claims []Claim, report reportFirst) {
		l.AcquireBatch(ctx, claims, func(i int, grant Grant, err error) { report(i, grant, false, err) })
	})
}

// releaseTogether returns the first requests of n releases.
func (g *Guard) releaseTogether(ctx context.Context, set *settings, n int) []*firstRequest {
	return g.askTogether(context.WithoutCancel(ctx), releaseTimeout(set.ttl), n, func(ctx context.Context, l driver.BatchAcquirer, claims []Claim, report reportFirst) {
		l.ReleaseBatch(ctx, claims, func(i int, held bool, err error) { report(i, Grant{}, held, err) })
	})
}

// A reportFirst notes the answer to the i-th request.
type reportFirst func(i int, grant Grant, held bool, err error)

// askTogether returns the first requests of n calls, which are nil if the Locker takes each by
// itself. send sends them within a time. A request on which the Locker does not report, because it
// forgot it or panicked, has an error for an answer.
func (g *Guard) askTogether(
	ctx context.Context, within time.Duration, n int,
	send func(ctx context.Context, l driver.BatchAcquirer, claims []Claim, report reportFirst),
) []*firstRequest {
	l, ok := driver.Ability[driver.BatchAcquirer](g.locker)
	if !ok {
		return make([]*firstRequest, n)
	}
	return g.newTogether(n, func(requests []*firstRequest) {
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		claims := make([]Claim, len(requests))
		for i, r := range requests {
			claims[i] = r.claim
		}
		reported := make([]sync.Once, len(requests))
		report := func(i int, grant Grant, held bool, err error) {
			reported[i].Do(func() {
				r := requests[i]
				r.grant, r.held, r.err = grant, held, err
				close(r.done)
			})
		}
		err := errAborted // unless send returns
		defer func() {
			_ = recover()
			for i := range requests {
				report(i, Grant{}, false, err)
			}
		}()
		send(ctx, l, claims, report)
		err = errUnreported
	})
}
