package tracing

import (
	"context"
	"errors"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// The values of onerun.result. Those of an acquire, of a run, of a renewal and of a release have
// some in common.
const (
	resultOK       = "ok"       // a run returned nil
	resultAcquired = "acquired" // an acquire was granted
	resultRenewed  = "renewed"
	resultReleased = "released"
	resultBusy     = "busy"     // another owner holds the key
	resultDone     = "done"     // the work has been done
	resultCanceled = "canceled" // the caller's context has ended
	resultClosed   = "closed"   // the Guard was closed
	resultLost     = "lost"     // the lease was lost
	resultPanic    = "panic"    // a run did not return: it panicked or ended its goroutine
	resultError    = "error"    // a run returned an error, or the store could not be asked
)

// errorOther is error.type for errors that have no better word: those of the user's own functions.
const errorOther = "_OTHER"

// An outcome is how something has ended, in the words that spans, metrics and logs share.
// errorType is empty where it is not an error.
type outcome struct{ result, errorType string }

// outcomeOf returns how an acquire, a renewal or a release that ended with err has ended. well is
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

// outcomeOfRun returns how a run has ended. What its function returned is an error whatever it is:
// also the end of a context, and ErrBusy of work inside of it.
func outcomeOfRun(e *guard.Event) outcome {
	switch {
	case e.Aborted:
		return outcome{resultPanic, "panic"}
	case e.Err == nil:
		return outcome{result: resultOK}
	}
	var lost *guard.LostError
	var closed *guard.ClosedError
	switch {
	case errors.As(e.Err, &lost) && lost.Key == e.Key:
		return outcome{resultLost, "lost_" + string(lost.Reason)}
	case errors.As(e.Err, &closed) && closed.Key == e.Key:
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

// wordOf returns the word for a kind. A store of somebody else's may have made one up.
func wordOf(k driver.StoreErrorKind) string {
	if kinds[k] {
		return string(k)
	}
	return string(driver.KindOther)
}
