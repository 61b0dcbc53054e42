package claim

import (
	"context"
	"errors"

	"github.com/seed-1795987d/onerun/guard"
)

// IsCutOff reports whether a run was ended that had not failed: its lease expired because the store
// could not renew it, or Guard.Close revoked it, and the handler returned the error of its context.
// A lease that ends for another reason, such as WithMaxHold, would end the next run in the same
// way. ctx is the one from before the run, err how the run ended, and returned what its handler
// returned.
func IsCutOff(ctx context.Context, err, returned error) bool {
	var lost *guard.LostError
	var closed *guard.ClosedError
	outage := errors.As(err, &lost) && lost.Reason == guard.LossExpired && lost.Renew != nil
	if ctx.Err() != nil || !outage && !errors.As(err, &closed) {
		return false
	}
	// errors.Is would also look into an errors.Join, which has an error of the handler's own
	for e := returned; e != nil; e = errors.Unwrap(e) {
		switch e.(type) { //nolint:errorlint // see above
		case *guard.LostError, *guard.ClosedError: // the cause of its context
			return true
		}
		if e == context.Canceled { //nolint:errorlint // see above
			return true
		}
	}
	return false
}
