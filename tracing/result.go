package tracing

import (
	"context"
	"errors"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// The values of onerun.result, for acquires, runs, renewals and releases.
const (
	resultOK       = "ok"       // a run returned nil
	resultAcquired = "acquired" // an acquire was granted
	resultRenewed  = "renewed"
	resultReleased = "released"
	resultBusy     = "busy"     // another owner holds the key
	resultDone     = "done"     // the work was done before
	resultCanceled = "canceled" // the caller's context has ended
	resultClosed   = "closed"   // the Guard was closed
	resultLost     = "lost"     // the lease was lost
	resultPanic    = "panic"    // a run did not return: it panicked or ended its goroutine
	resultError    = "error"    // a run returned an error, or the store could not be asked
)

// errorOther is error.type for errors without a better word: those of the user's functions.
const errorOther = "_OTHER"

// An outcome is the result of a call, in the words that spans, metrics and logs share. errorType
// is empty if it is no error.
type outcome struct{ result, errorType string }

// outcomeOf returns the outcome of an acquire, a renewal or a release that returned err. well is
// the result if err is nil.
func outcomeOf(err error, well string) outcome {
	if err == nil {
		return outcome{result: well}
	}
	return outcomeOfError(err)
}

func outcomeOfError(err error) outcome {
	var lost *guard.LostError
	var store *guard.StoreError
	switch {
	case errors.As(err, &lost):
		return outcome{resultLost, "lost_" + string(lost.Reason)}
	case errors.Is(err, guard.ErrBusy):
		return outcome{result: resultBusy}
	case errors.Is(err, guard.ErrDone):
		return outcome{result: resultDone}
	case errors.Is(err, guard.ErrClosed):
		return outcome{result: resultClosed}
	case errors.As(err, &store):
		return outcome{resultError, wordOf(store.Kind)}
	case errors.Is(err, guard.ErrStore):
		return outcome{resultError, string(driver.KindOther)}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return outcome{result: resultCanceled}
	}
	return outcome{resultError, errorOther}
}

// outcomeOfRun returns the outcome of a run. Whatever its function returned is an error, even the
// end of a context, or ErrBusy of work inside it.
func outcomeOfRun(e *guard.Event) outcome {
	switch {
	case e.Aborted:
		return outcome{resultPanic, "panic"}
	case e.Err == nil:
		return outcome{result: resultOK}
	}
	if e.LeaseEnded {
		//nolint:errorlint // the error inside it may be that of another lease
		if lost, ok := e.Err.(*guard.LostError); ok {
			return outcome{resultLost, "lost_" + string(lost.Reason)}
		}
		return outcome{resultClosed, resultClosed}
	}
	err := e.Err
	var marker *guard.MarkerError
	if errors.As(err, &marker) {
		err = marker.Err
	}
	var store *guard.StoreError
	if errors.As(err, &store) {
		return outcome{resultError, wordOf(store.Kind)}
	}
	return outcome{resultError, errorOther}
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
