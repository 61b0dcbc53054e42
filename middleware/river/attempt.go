package guardriver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/riverqueue/river/rivertype"

	"github.com/seed-1795987d/onerun/guard"
)

// An attempt is one job that River has given to a worker.
type attempt struct {
	m    *middleware
	ctx  context.Context
	job  *rivertype.JobRow
	next func(context.Context) error

	key      string         // the key that the KeyFunc returned
	identity string         // the key of the lease under which the worker runs
	onceKey  string         // the key of the lease that leaves the done marker, or ""
	lease    []guard.Option // of WithJobLease

	started bool  // the worker was called
	err     error // what it returned
	outcome guard.Outcome
}

func (m *middleware) newAttempt(ctx context.Context, job *rivertype.JobRow, next func(context.Context) error) *attempt {
	a := &attempt{m: m, ctx: ctx, job: job, next: next}
	a.outcome = guard.Outcome{Adapter: "river", Name: m.name, Start: time.Now()}
	if m.name == "" {
		a.outcome.Name = kindName(job.Kind)
	}
	return a
}

// work runs the worker under its leases, and returns the error for River.
func (a *attempt) work() error {
	defer a.report()
	if err := a.identify(); err != nil {
		a.end(resultRefused, err)
		a.outcome.Refused = err
		return err
	}
	if a.identity == "" {
		a.end(resultUnguarded, nil)
		a.outcome.Err = a.call(a.ctx)
		return a.err
	}
	return a.answer(a.acquire())
}

// identify calls the KeyFuncs, and the function of WithJobLease.
func (a *attempt) identify() (err error) {
	a.end(resultRefused, nil) // if a function panics
	if a.key, a.identity, err = a.find(a.m.key, ""); err != nil {
		return a.named("key", err)
	}
	if a.m.onceBy != nil {
		key, onceKey, err := a.find(a.m.onceBy, "once ")
		if err != nil {
			return a.named("key", err)
		}
		if a.onceKey = onceKey; a.identity == "" { // one lease does for both
			a.key, a.identity = key, onceKey
		}
	}
	if a.identity == "" || a.m.perJob == nil {
		return nil
	}
	a.lease = a.m.perJob(a.ctx, a.job)
	adapter := a.m.guard.Adapter()
	if err := adapter.CheckOptions(a.m.refusedOfJob(), a.lease...); err != nil {
		return a.named("lease", err)
	}
	if name := adapter.Name(append(slices.Clip(a.m.opts), a.lease...)...); name != "" {
		a.outcome.Name = name
	}
	return nil
}

// find returns the key of a KeyFunc and the one under which the store knows it. Both are empty if
// the function is nil or returns ErrUnguarded.
func (a *attempt) find(f KeyFunc, use string) (key, identity string, err error) {
	if f == nil {
		return "", "", nil
	}
	key, err = f(a.ctx, a.job)
	if errors.Is(err, ErrUnguarded) {
		return "", "", nil
	}
	if err == nil {
		key, err = found(a.job, key, "the key")
	}
	return key, a.m.identity(a.job, use, key), err
}

// named says of what job an error is.
func (a *attempt) named(of string, err error) error {
	return fmt.Errorf("guardriver: %s of job %d (%s): %w", of, a.job.ID, a.job.Kind, err)
}

// acquire runs the worker under its lease, or under its two leases, if it gets them in time.
func (a *attempt) acquire() error {
	until := time.Now().Add(a.m.wait)
	once := append(a.options(a.m.wait), guard.WithOnce(a.m.once), guard.WithLimit(0))
	adapter, do := a.m.guard.Adapter(), a.m.guard.Do
	switch a.onceKey {
	case "":
		return do(a.ctx, a.identity, a.run, a.options(a.m.wait)...)
	case a.identity:
		return do(a.ctx, a.identity, a.run, once...)
	default:
		return do(a.ctx, a.onceKey, func(ctx context.Context) error {
			// the rest of the wait, which is for both leases
			return do(ctx, a.identity, a.run, a.options(time.Until(until))...)
		}, append(once, adapter.Auxiliary())...)
	}
}

// options returns the options of a lease of the job.
func (a *attempt) options(wait time.Duration) []guard.Option {
	opts := append(slices.Clip(a.m.opts), guard.WithName(a.outcome.Name))
	if wait > 0 {
		opts = append(opts, guard.WithWait(wait))
	}
	return append(opts, a.lease...)
}

// run calls the worker under the lease of ctx.
func (a *attempt) run(ctx context.Context) error {
	a.end(resultRan, nil)
	a.outcome.Fence = guard.Fence(ctx)
	return a.call(ctx)
}

// call calls the worker.
func (a *attempt) call(ctx context.Context) error {
	a.started, a.outcome.Aborted = true, true
	a.err = a.next(context.WithValue(ctx, runKey{}, a))
	a.outcome.Aborted = false
	return a.err
}

func (a *attempt) end(r result, err error) { a.outcome.Result, a.outcome.Err = string(r), err }

// report is called when the attempt has an answer for River, or when a function has panicked.
func (a *attempt) report() {
	a.outcome.Duration = time.Since(a.outcome.Start)
	a.m.guard.Adapter().Report(a.ctx, a.outcome, append(slices.Clip(a.m.lease), a.lease...)...)
}

type runKey struct{}

// Key returns the key of the job under which a worker runs, as the KeyFunc returned it, or "" if
// ctx is not that of a worker behind the middleware. The lease and its fence are in
// guard.FromContext and guard.Fence.
func Key(ctx context.Context) string {
	if a, ok := ctx.Value(runKey{}).(*attempt); ok {
		return a.key
	}
	return ""
}
