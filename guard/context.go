package guard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// contextError is the error of a call whose caller's context has ended.
type contextError struct {
	op         driver.Op
	key        string
	err, cause error
}

// maxTimerDelay is how late a timer may fire.
const maxTimerDelay = 20 * time.Millisecond

// hasEnded reports whether the context of a caller has ended. If its deadline has passed, it has: a
// connection that has the same deadline may have noticed first. hasEnded then waits for the timer
// of the context for a moment, so that the caller finds its context ended, too.
func hasEnded(ctx context.Context) bool {
	if ctx.Err() != nil {
		return true
	}
	deadline, ok := ctx.Deadline()
	if !ok || time.Now().Before(deadline) {
		return false
	}
	late := time.NewTimer(maxTimerDelay)
	defer late.Stop()
	select {
	case <-ctx.Done():
	case <-late.C:
	}
	return true
}

// contextEnded returns the error of a call whose caller's context has ended (hasEnded).
func contextEnded(ctx context.Context, op driver.Op, key string) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if err == nil {
		err, cause = context.DeadlineExceeded, context.DeadlineExceeded
	}
	return &contextError{op: op, key: key, err: err, cause: cause}
}

func (e *contextError) Error() string {
	if errors.Is(e.cause, e.err) {
		return fmt.Sprintf("guard: %s %q: %v", e.op, e.key, e.cause)
	}
	return fmt.Sprintf("guard: %s %q: %v: %v", e.op, e.key, e.err, e.cause)
}

// Unwrap returns the context's error and its cause.
func (e *contextError) Unwrap() []error { return []error{e.err, e.cause} }

// Ran returns false: the function did not run.
func (e *contextError) Ran() bool { return false }
