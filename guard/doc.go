// Package guard runs a piece of work once, cluster-wide: each run takes a lease on a key, which is
// renewed while the work runs and given back when it has ended.
//
//	g, err := guard.New(single.New(rdb))
//	...
//	err = g.Do(ctx, "report:2026-11-21", build, guard.WithOnce(24*time.Hour))
//	switch {
//	case errors.Is(err, guard.ErrBusy): // another process is at it
//	case errors.Is(err, guard.ErrDone): // it ran already
//	}
//
// A lease is advice with an expiry. On a process that runs, the context of the work ends before the
// lease does. A process that is paused past its lease can believe for a moment that it holds what it
// has lost: ask Lease.Valid right before a side effect, and write the fence beside what you write, so that
// the resource can refuse a stale holder. A done marker keeps repeats out for its window. None of this
// is "exactly once": work that must not be repeated has to check the fence where it writes.
package guard
