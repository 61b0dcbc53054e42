package guardasynq_test

import (
	"context"
	"errors"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	guardasynq "github.com/seed-1795987d/onerun/middleware/asynq"
)

// The results that hooks receive. The package comment and the page list them.
const (
	resultRan         = "ran"
	resultUnguarded   = "unguarded"
	resultDone        = "done"
	resultSkipped     = "skipped"
	resultCoalesced   = "coalesced"
	resultPostponed   = "postponed"
	resultUnavailable = "unavailable"
	resultBusy        = "busy"
	resultRefused     = "refused"
	resultCanceled    = "canceled"
)

// An aqOutcome is an outcome with the details of its *guardasynq.PostponedError.
type aqOutcome struct {
	guard.Outcome
	After time.Duration
	Copy  string
}

// aqObserve calls f with the outcome of each delivery.
func aqObserve(f func(context.Context, aqOutcome)) guardasynq.Option {
	return guardasynq.WithLease(guard.WithHook(guard.Hook{Outcome: func(ctx context.Context, o guard.Outcome) {
		all := aqOutcome{Outcome: o}
		var p *guardasynq.PostponedError
		if errors.As(o.Err, &p) {
			all.After, all.Copy = p.After, p.Copy
		}
		f(ctx, all)
	}}))
}
