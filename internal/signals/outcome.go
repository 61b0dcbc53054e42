// Package signals has what traces, metrics and logs share: the words for outcomes, the redaction of
// keys and owners, and the traceparent in a label.
package signals

import (
	"context"
	"errors"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// The values of onerun.result, for acquires, runs, renewals and releases.
const (
	OK       = "ok"       // a run returned nil
	Acquired = "acquired" // an acquire was granted
	Renewed  = "renewed"
	Released = "released"
	Busy     = "busy"     // another owner holds the key
	Done     = "done"     // the work was done before
	Canceled = "canceled" // the caller's context has ended
	Closed   = "closed"   // the Guard was closed
	Lost     = "lost"     // the lease was lost
	Panic    = "panic"    // a run did not return: it panicked or ended its goroutine
	Error    = "error"    // a run returned an error, or the store could not be asked
)

// NoName is the name of work that has none.
const NoName = "unnamed"

// ErrorOther is error.type for errors without a better word: those of the user's functions.
const ErrorOther = "_OTHER"

// An Outcome is the result of a call, in the words that spans, metrics and logs share. ErrorType
// is empty if it is no error.
type Outcome struct{ Result, ErrorType string }

// OutcomeOf returns the outcome of an acquire, a renewal or a release that returned err. well is
// the result if err is nil.
func OutcomeOf(err error, well string) Outcome {
	if err == nil {
		return Outcome{Result: well}
	}
	return outcomeOfError(err)
}

func outcomeOfError(err error) Outcome {
	var lost *guard.LostError
	var store *guard.StoreError
	switch {
	case errors.As(err, &lost):
		return Outcome{Lost, "lost_" + string(lost.Reason)}
	case errors.Is(err, guard.ErrBusy):
		return Outcome{Result: Busy}
	case errors.Is(err, guard.ErrDone):
		return Outcome{Result: Done}
	case errors.Is(err, guard.ErrClosed):
		return Outcome{Result: Closed}
	case errors.As(err, &store):
		return Outcome{Error, wordOf(store.Kind)}
	case errors.Is(err, guard.ErrStore):
		return Outcome{Error, string(driver.KindOther)}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return Outcome{Result: Canceled}
	}
	return Outcome{Error, ErrorOther}
}

// OutcomeOfRun returns the outcome of a run. Whatever its function returned is an error, even the
// end of a context, or ErrBusy of work inside it.
func OutcomeOfRun(e *guard.RunEndEvent) Outcome {
	switch {
	case e.Aborted:
		return Outcome{Panic, "panic"}
	case e.Err == nil:
		return Outcome{Result: OK}
	}
	if e.LeaseEnded {
		//nolint:errorlint // the error inside it may be that of another lease
		if lost, ok := e.Err.(*guard.LostError); ok {
			return Outcome{Lost, "lost_" + string(lost.Reason)}
		}
		return Outcome{Closed, Closed}
	}
	err := e.Err
	var marker *guard.MarkerError
	if errors.As(err, &marker) {
		err = marker.Err
	}
	var store *guard.StoreError
	if errors.As(err, &store) {
		return Outcome{Error, wordOf(store.Kind)}
	}
	return Outcome{Error, ErrorOther}
}

// kinds are the words for errors of stores.
var kinds = map[driver.StoreErrorKind]bool{
	driver.KindTimeout: true, driver.KindCanceled: true, driver.KindConnection: true, driver.KindPoolExhausted: true, driver.KindLimit: true, driver.KindOOM: true, driver.KindNotPersisted: true,
	driver.KindReadOnly: true, driver.KindLoading: true, driver.KindRestarted: true, driver.KindScriptBusy: true, driver.KindMoved: true, driver.KindNoReplicas: true,
	driver.KindQuorum: true, driver.KindClosed: true, driver.KindAuth: true, driver.KindWrongType: true, driver.KindUnsupported: true, driver.KindProtocol: true,
	driver.KindSettings: true,
}

// wordOf returns the word for a kind. A foreign backend can have kinds of its own.
func wordOf(k driver.StoreErrorKind) string {
	if kinds[k] {
		return string(k)
	}
	return string(driver.KindOther)
}
