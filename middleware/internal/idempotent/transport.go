package idempotent

import (
	"context"
	"time"

	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// A Transport is what an adapter does with a call. Serve calls it.
type Transport interface {
	// Identify sets Route, Scope, Key, Fingerprint and RunKey of the Call. The result is empty if
	// the call can run under a lease, and otherwise final.
	Identify() (idempotency.Result, error)
	// Pass runs the handler of a call that is left untouched.
	Pass()
	// Bare runs the handler in ctx without a lease, and records nothing.
	Bare(ctx context.Context)
	// Handle runs the handler in ctx, records its answer and returns what its run leaves.
	Handle(ctx context.Context) Left
	// Send sends what Handle has kept until the record was in the store.
	Send()
	// Discard forgets it instead, and reports whether nothing of the answer was sent.
	Discard() bool
	// Read takes an answer out of a record. Its error is an *idempotency.RecordError.
	Read(a *Answer) error
	// Replay sends the answer that Read has taken.
	Replay()
	// Refuse answers that the handler did not run, or that its answer cannot be sent. retryAfter
	// is 0 if trying again is of no use.
	Refuse(result idempotency.Result, retryAfter time.Duration, err error)
}

// Left is what the run of a handler leaves.
type Left struct {
	Keep   idempotency.Keep
	Answer *Answer // if Keep is KeepAnswer
	Failed bool    // nothing is kept, and the handler failed, which the Guard reports
	Err    error   // what there is to say about a run that is otherwise in order
}

// Codes of refusals that are no final results.
const (
	// GivenUp means that the handler's context has ended, and the handler has not answered.
	GivenUp idempotency.Result = "given_up"
	// NotRecorded means that the handler has run, and its answer may not be in the store.
	NotRecorded idempotency.Result = "unrecorded"
)

// An Ending is how a handler has ended.
type Ending struct {
	Gone       bool // the client did not get all of the answer
	Unsure     bool // the handler may still run, so a retry must not run beside it
	Undecided  bool // other code may answer after the handler, which has not
	Replayable bool // the answer can be given again
}
