package simulation_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// A recorder is a Locker that records the calls of a Guard and the answers.
type recorder struct {
	driver.Wrapper
	process *process
}

var _ driver.Subscriber = recorder{}

// asyncRecorder is a recorder around a Locker whose calls answer later.
type asyncRecorder struct {
	recorder
	async driver.Async
}

func record(p *process, l guard.Locker) guard.Locker {
	r := recorder{driver.Wrapper{Locker: l}, p}
	if async, ok := l.(driver.Async); ok {
		return asyncRecorder{r, async}
	}
	return r
}

// An attempt is in the context of a call. It records whether the call has handed its lease off.
type attempt struct{ handedOff atomic.Bool }

type attemptKey struct{}

func withAttempt(ctx context.Context) (context.Context, *attempt) {
	a := &attempt{}
	return context.WithValue(ctx, attemptKey{}, a), a
}

// noteHandOff is a hook.
func noteHandOff(ctx context.Context, e guard.ReleaseEvent) {
	if a, ok := ctx.Value(attemptKey{}).(*attempt); ok {
		a.handedOff.CompareAndSwap(false, e.HandedOff)
	}
}

// Subscribe has the nodes of the simulation notify. Other backends never do: waiters poll. A
// backend's pushes have no order that a seed could repeat, because it ranges over maps and takes
// pauses from random numbers that are not seeded.
func (r recorder) Subscribe(key, id string, notify func(time.Duration)) (stop func()) {
	if r.process.world.nodes == nil {
		return func() {}
	}
	return r.Wrapper.Subscribe(key, id, notify)
}

// goOn returns when the process is not stopped, or goes on. A request whose context has ended by
// then is not sent: a client that has both an ended context and a connection picks either.
func (r recorder) goOn(ctx context.Context, c driver.Claim) error {
	r.process.step(c.ID)
	return ctx.Err()
}

func (r recorder) TryAcquire(ctx context.Context, c driver.Claim) (driver.Answer, error) {
	defer r.process.step("answer " + c.ID)
	if err := r.goOn(ctx, c); err != nil {
		return driver.Answer{}, err
	}
	if c.Fences.Reserve > 0 {
		c.Fences.Reserve = 1 << 20 // as many as the store is able to
	}
	call := r.begin("acquire", c)
	r.process.world.beliefs.asks(c)
	grant, err := r.Locker.TryAcquire(ctx, c)
	call.acquired(grant, err)
	return grant, err
}

func (r recorder) Renew(ctx context.Context, c driver.Claim) (bool, error) {
	defer r.process.step("answer " + c.ID)
	if err := r.goOn(ctx, c); err != nil {
		return false, err
	}
	call := r.begin("renew", c)
	held, err := r.Locker.Renew(ctx, c)
	call.renewed(held, err)
	return held, err
}

func (r asyncRecorder) Start(
	ctx context.Context, op driver.Op, claims []driver.Claim, after driver.After, done func(i int, a driver.Answer, err error),
) {
	if op == driver.OpRelease {
		for _, c := range claims {
			r.process.world.beliefs.releasing(c.ID)
		}
	}
	if err := r.goOn(ctx, claims[0]); err != nil {
		for i := range claims {
			done(i, driver.Answer{}, err)
		}
		return
	}
	calls := make([]call, len(claims))
	for i, c := range claims {
		if calls[i] = r.begin(string(op), c); op == driver.OpAcquire {
			r.process.world.beliefs.asks(c)
		}
	}
	r.async.Start(ctx, op, claims, after, func(i int, a driver.Answer, err error) {
		switch op {
		case driver.OpAcquire:
			calls[i].acquired(a, err)
		case driver.OpRenew:
			calls[i].renewed(a.Held, err)
		default:
			calls[i].released(after, a.Held, err)
		}
		r.process.step("answer " + claims[i].ID)
		done(i, a, err)
	})
}

func (r recorder) Release(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
	defer r.process.step("answer " + c.ID)
	r.process.world.beliefs.releasing(c.ID)
	call := r.begin("release", c)
	held, err := false, r.goOn(ctx, c)
	if err == nil {
		held, err = r.Locker.Release(ctx, c, after)
	}
	call.released(after, held, err)
	return held, err
}

// A call is one to the store, from when the Guard makes it until it gets the answer.
type call struct {
	recorder
	op    string
	claim driver.Claim
	sent  time.Time
}

func (r recorder) begin(op string, c driver.Claim) call { return call{r, op, c, time.Now()} }

func (c call) end(answer any, err error) {
	c.process.world.trace.add("%s %s %s %.6s: %v (after %v)", c.process.name, c.op, c.claim.Key, c.claim.ID,
		outcome(answer, err), time.Since(c.sent))
}

func (c call) acquired(grant driver.Answer, err error) {
	c.end(fmt.Sprint(grant.State, grant.Fence, grant.Held), err)
	if err == nil && grant.State == driver.Granted {
		c.process.world.beliefs.granted(c.claim, c.sent, grant)
	}
}

func (c call) released(after driver.After, held bool, err error) {
	c.end(held, err)
	w := c.process.world
	w.beliefs.released(c.claim.ID)
	if err != nil {
		w.beliefs.unanswered(c.claim.ID)
		w.spans.unanswered(c.claim.Key)
	}
	if after.Keep > 0 && (held || err != nil) {
		w.beliefs.keep(c.claim.ID, c.sent, after.Keep, err)
	}
}

func (c call) renewed(held bool, err error) {
	c.end(held, err)
	if err == nil && held {
		c.process.world.beliefs.renewed(c.claim, c.sent)
	}
}
