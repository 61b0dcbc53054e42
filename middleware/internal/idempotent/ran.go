package idempotent

import "github.com/seed-1795987d/onerun/guard"

// NotRun returns err such that guard.Ran is false for it: the handler does not run. It returns nil
// for nil.
func NotRun(err error) error { return says(false, err) }

// says returns err such that guard.Ran says of it whether the handler ran, or is to run.
func says(ran bool, err error) error {
	if err == nil || guard.Ran(err) == ran {
		return err
	}
	return &outcomeError{err, ran}
}

// An outcomeError is an error of a call whose handler did, or did not, run whatever the error
// itself says. A function of the user's, for example, knows nothing of the handler.
type outcomeError struct {
	err error
	ran bool
}

func (e *outcomeError) Error() string { return e.err.Error() }
func (e *outcomeError) Unwrap() error { return e.err }
func (e *outcomeError) Ran() bool     { return e.ran }
