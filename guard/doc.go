// Package guard runs a piece of work once, cluster-wide. Each run acquires a lease on a key, which
// is renewed while the work runs and released when it has ended.
//
//	g, err := guard.New(single.New(rdb), guard.WithNamespace("billing"))
//	...
//	err = g.Do(ctx, "report:2026-11-21", build, guard.WithOnce(24*time.Hour))
//	switch {
//	case errors.Is(err, guard.ErrBusy): // another process is running it
//	case errors.Is(err, guard.ErrDone): // it has run already
//	}
//
// # For applications
//
// Create one [Guard] per process with [New], over the Locker of a backend. Run work with
// [Guard.Do], [DoValue] or [Guard.Wrap], or hold a [Lease] with [Guard.Acquire]. An [Option]
// changes how a call treats a busy key, and what others find. WithWait and WithFair make calls
// wait, and WithOnce keeps repeats out for a window. WithMinHold and WithMaxHold bound the time
// that the key is taken. WithShared and WithLimit let several calls hold a key, and [Guard.DoAll]
// holds several keys. [Guard.Lead] elects a leader. Inside the run, [FromContext] and [Fence]
// return the lease and its fencing token. The error values, beginning with [ErrBusy], say how a
// call ended, and [Ran] whether the function ran. A [Hook] receives everything that happens;
// package tracing has one. Call [Guard.Close] at the end.
//
// A lease is advice with an expiry. While the process runs, the context of the work ends before
// the lease does. But a process that is paused past its lease can believe for a moment that it
// holds what it has lost. So call [Lease.Valid] right before a side effect, and let the resource
// refuse stale holders by the fence. The work registers the fence when it first reads the
// resource, because a holder that is paused between its read and its write would otherwise
// overwrite what came between:
//
//	UPDATE stock SET fence = $1 WHERE item = $2 AND fence <= $1 RETURNING remaining
//	UPDATE stock SET remaining = $3 WHERE item = $2 AND fence = $1
//
// If a statement matches no row, a newer holder has come, and the run must stop. Count the rows
// that matched: MySQL counts those that changed, unless the data source name has
// clientFoundRows=true. A done marker keeps repeats out for its window. None of this is "exactly
// once".
//
// # For backends
//
// A backend implements [Locker], three methods that make one attempt each. Package guard/driver
// specifies them, with [driver.Claim], [driver.Answer] and [driver.After], the optional abilities
// of a Locker, and the kinds of store errors. Package guard/guardtest checks them. The Guard does
// everything else: it waits, retries, renews, cleans up and reports.
//
// # For adapters
//
// An adapter puts a Guard in front of a framework, as middleware/http, middleware/grpc,
// middleware/asynq and middleware/cron do. [Guard.Adapter] returns what it needs beyond the API
// for applications. This is a name for the work, leases and probes that hooks do not count, a
// report of the final [Outcome], and a log.
package guard
