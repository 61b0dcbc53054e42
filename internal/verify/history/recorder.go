package history

import (
	"context"
	"errors"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// recorder is a Locker that records the calls of a Guard and the answers. Its other abilities are
// those of the inner Locker.
type recorder struct {
	guard.Locker
	log *Log
}

// batchRecorder is a recorder around a Locker that renews in batches.
type batchRecorder struct {
	recorder
	batch driver.BatchRenewer
}

var (
	_ driver.Unwrapper    = recorder{}
	_ driver.BatchRenewer = batchRecorder{}
)

// Record returns l as a Locker whose calls are written to the log.
func (l *Log) Record(inner guard.Locker) guard.Locker {
	r := recorder{inner, l}
	if batch, ok := driver.Ability[driver.BatchRenewer](inner); ok {
		return batchRecorder{r, batch}
	}
	return r
}

// Unwrap implements driver.Unwrapper.
func (r recorder) Unwrap() guard.Locker { return r.Locker }

// TryAcquire implements guard.Locker.
func (r recorder) TryAcquire(ctx context.Context, c driver.Claim) (driver.Answer, error) {
	e := r.begin(Acquire, c)
	grant, err := r.Locker.TryAcquire(ctx, c)
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
	case grant.Reason == driver.Collided, grant.Reason == driver.OtherNotified:
		e.Outcome = Neither
	default:
		e.Outcome = Busy
	}
	r.log.End(e)
	return grant, err
}

// Renew implements guard.Locker.
func (r recorder) Renew(ctx context.Context, c driver.Claim) (bool, error) {
	e := r.begin(Renew, c)
	held, err := r.Locker.Renew(ctx, c)
	r.answer(e, held, err)
	return held, err
}

// RenewBatch implements driver.BatchRenewer.
func (r batchRecorder) RenewBatch(ctx context.Context, claims []driver.Claim, report func(int, bool, error)) {
	all := make([]Event, len(claims))
	for i, c := range claims {
		all[i] = r.begin(Renew, c)
	}
	r.batch.RenewBatch(ctx, claims, func(i int, held bool, err error) {
		r.answer(all[i], held, err)
		report(i, held, err)
	})
}

// Release implements guard.Locker.
func (r recorder) Release(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
	e := r.begin(Release, c)
	held, err := r.Locker.Release(ctx, c, after)
	r.answer(e, held, err)
	return held, err
}

func (r recorder) begin(kind Kind, c driver.Claim) Event {
	return r.log.Begin(Event{Kind: kind, Key: c.Key, Claim: c.ID, Fence: c.Fence, Reserve: c.Reserve, TTL: c.TTL})
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
