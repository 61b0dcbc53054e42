package guardriver

import (
	"context"
	"fmt"

	"github.com/riverqueue/river/rivertype"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/internal/claim"
)

// An attempt is one job that River has given to a worker.
type attempt struct {
	m    *middleware
	ctx  context.Context
	job  *rivertype.JobRow
	next func(context.Context) error

	claim.Attempt
}

func (m *middleware) newAttempt(ctx context.Context, job *rivertype.JobRow, next func(context.Context) error) *attempt {
	return &attempt{m: m, ctx: ctx, job: job, next: next, Attempt: m.core.Begin(ctx, job.Kind)}
}

// work runs the worker under its leases, and returns the error for River.
func (a *attempt) work() error {
	defer a.Report()
	if err := a.identify(); err != nil {
		return a.Refuse(err)
	}
	if a.Identity == "" {
		return a.Unguarded(func() error { return a.call(a.ctx) })
	}
	return a.answer(a.Do(a.ctx, a.m.Wait, func(ctx context.Context, _ *guard.Lease) error {
		return a.Call(func() error { return a.call(ctx) })
	}))
}

// identify calls the KeyFuncs, and the function of WithJobLease.
func (a *attempt) identify() error {
	s := claim.Source{Kind: a.job.Kind, Of: a.String, Key: a.m.key.source(a.ctx, a.job), Once: a.m.onceBy.source(a.ctx, a.job)}
	if a.m.perJob != nil {
		s.Lease = func() []guard.Option { return a.m.perJob(a.ctx, a.job) }
	}
	return a.Identify(s)
}

// String names the job in errors.
func (a *attempt) String() string { return fmt.Sprintf("job %d (%s)", a.job.ID, a.job.Kind) }

// call calls the worker.
func (a *attempt) call(ctx context.Context) error {
	return a.next(context.WithValue(ctx, runKey{}, a))
}

type runKey struct{}

// Key returns the key of the job under which a worker runs, as the KeyFunc returned it, or "" if
// ctx is not that of a worker behind the middleware. The lease and its fence are in
// guard.FromContext and guard.Fence.
func Key(ctx context.Context) string {
	if a, ok := ctx.Value(runKey{}).(*attempt); ok {
		return a.Key
	}
	return ""
}
