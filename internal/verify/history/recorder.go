package history

import (
	"context"
	"errors"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// recorder is a Locker that records the calls of a Guard and the answers.
type recorder struct {
	driver.Wrapper
	log *Log
}

// asyncRecorder is a recorder around a Locker whose calls answer later.
type asyncRecorder struct {
	recorder
	async driver.Async
}

// Record returns l as a Locker whose calls are written to the log.
func (l *Log) Record(inner guard.Locker) guard.Locker {
	r := recorder{driver.Wrapper{Locker: inner}, l}
	if async, ok := inner.(driver.Async); ok {
		return asyncRecorder{r, async}
	}
	return r
}

// TryAcquire implements guard.Locker.
func (r recorder) TryAcquire(ctx context.Context, c driver.Claim) (driver.Answer, error) {
	e := r.begin(Acquire, c)
	grant, err := r.Locker.TryAcquire(ctx, c)
	r.acquired(e, c, grant, err)
	return grant, err
}

// Start implements driver.Async.
func (r asyncRecorder) Start(
	ctx context.Context, op driver.Op, claims []driver.Claim, after driver.After, done func(i int, a driver.Answer, err error),
) {
	kind := map[driver.Op]Kind{driver.OpAcquire: Acquire, driver.OpRenew: Renew, driver.OpRelease: Release}[op]
	all := r.beginAll(kind, claims)
	r.async.Start(ctx, op, claims, after, func(i int, a driver.Answer, err error) {
		if op == driver.OpAcquire {
			r.acquired(all[i], claims[i], a, err)
		} else {
			r.answer(all[i], a.Held, err)
		}
		done(i, a, err)
	})
}

// acquired writes what the store has answered to a claim.
func (r recorder) acquired(e Event, c driver.Claim, grant driver.Answer, err error) {
	e.Fence = grant.Fence
	switch {
	case err != nil:
		e.Outcome, e.Fence = failed(err), 0
		e.Err = err.Error()
	case grant.State == driver.Granted:
		e.Outcome = OK
		r.log.granted(c.Owner, c.ID, e.Call)
		e.Reserve = grant.Reserved
	case grant.State == driver.Done:
		e.Outcome = Done
	case grant.Reason.IsUndecided(), grant.Reason == driver.OtherNotified:
		e.Outcome = Neither
	default:
		e.Outcome = Busy
	}
	r.log.End(e)
}

// Renew implements guard.Locker.
func (r recorder) Renew(ctx context.Context, c driver.Claim) (bool, error) {
	e := r.begin(Renew, c)
	held, err := r.Locker.Renew(ctx, c)
	r.answer(e, held, err)
	return held, err
}

// Release implements guard.Locker.
func (r recorder) Release(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
	e := r.begin(Release, c)
	held, err := r.Locker.Release(ctx, c, after)
	r.answer(e, held, err)
	return held, err
}

func (r recorder) begin(kind Kind, c driver.Claim) Event {
	return r.log.Begin(Event{Kind: kind, Key: c.Key, Claim: c.ID, Fence: c.Fence, Reserve: c.Fences.Reserve, TTL: c.TTL})
}

func (r recorder) beginAll(kind Kind, claims []driver.Claim) []Event {
	all := make([]Event, len(claims))
	for i, c := range claims {
		all[i] = r.begin(kind, c)
	}
	return all
}

// answer writes what the store has said to a renewal or a release.
func (r recorder) answer(e Event, held bool, err error) {
	switch {
	case err != nil:
		e.Outcome, e.Err = failed(err), err.Error()
	case held:
		e.Outcome = OK
	default:
		e.Outcome = NotHeld
	}
	if e.Kind == Renew && e.Outcome == OK {
		r.log.prove(e.Claim, e.Call)
	}
	r.log.End(e)
}

// failed tells what a server has refused, and so not done, from what it may have done.
func failed(err error) Outcome {
	var store *guard.StoreError
	if !errors.As(err, &store) {
		return Unknown
	}
	switch store.Kind {
	case driver.KindLimit, driver.KindOOM, driver.KindNotPersisted, driver.KindReadOnly, driver.KindLoading, driver.KindRestarted, driver.KindScriptBusy, driver.KindAuth, driver.KindWrongType:
		return Neither
	default:
		return Unknown
	}
}
