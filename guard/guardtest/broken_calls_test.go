package guardtest_test

import (
	"context"
	"errors"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

// calls passes every call of a Locker through one function.
func calls(through func(ctx context.Context, op driver.Op, c driver.Claim, call func(context.Context) error) error) guardtest.Backend {
	return wrapped(func(l guard.Locker) guard.Locker {
		return &twist{
			Locker: l,
			acquire: func(ctx context.Context, c driver.Claim) (g driver.Answer, err error) {
				err = through(ctx, driver.OpAcquire, c, func(ctx context.Context) (err error) { g, err = l.TryAcquire(ctx, c); return err })
				return g, err
			},
			renew: func(ctx context.Context, c driver.Claim) (held bool, err error) {
				err = through(ctx, driver.OpRenew, c, func(ctx context.Context) (err error) { held, err = l.Renew(ctx, c); return err })
				return held && err == nil, err
			},
			release: func(ctx context.Context, c driver.Claim, after driver.After) (held bool, err error) {
				err = through(ctx, driver.OpRelease, c, func(ctx context.Context) (err error) { held, err = l.Release(ctx, c, after); return err })
				return held && err == nil, err
			},
		}
	})
}

// endedContextChecks returns the checks of contexts that have ended.
func endedContextChecks() []string {
	return []string{
		"a claim whose context has ended changes nothing",
		"a renewal whose context has ended changes nothing",
		"a release whose context has ended changes nothing",
		"a batch whose context has ended reports an error for each claim",
	}
}

func brokenContexts() []broken {
	return []broken{
		{"the context is ignored", calls(func(ctx context.Context, _ driver.Op, _ driver.Claim, call func(context.Context) error) error {
			return call(context.WithoutCancel(ctx))
		}), endedContextChecks()},
		{"a call whose context has ended takes effect", calls(func(ctx context.Context, op driver.Op, c driver.Claim, call func(context.Context) error) error {
			err := call(context.WithoutCancel(ctx))
			if ctx.Err() != nil {
				err = driver.NewStoreError("late", op, c.Key, ctx.Err())
			}
			return err
		}), endedContextChecks()},
		{"errors are not StoreErrors", calls(func(ctx context.Context, _ driver.Op, _ driver.Claim, call func(context.Context) error) error {
			return errors.Unwrap(errors.Unwrap(call(ctx)))
		}), endedContextChecks()},
		{"errors do not say what failed", calls(func(ctx context.Context, _ driver.Op, c driver.Claim, call func(context.Context) error) error {
			var store *guard.StoreError
			err := call(ctx)
			if errors.As(err, &store) {
				return driver.NewStoreError("vague", "call", c.Key, ctx.Err())
			}
			return err
		}), endedContextChecks()},
		{"errors are permanent", calls(func(ctx context.Context, op driver.Op, c driver.Claim, call func(context.Context) error) error {
			if err := call(ctx); err != nil {
				return &guard.StoreError{Backend: "hopeless", Op: op, Key: c.Key, Kind: driver.KindClosed, Err: err}
			}
			return nil
		}), endedContextChecks()},
	}
}

func brokenFreezes() []broken {
	frozen := []string{
		"a claim on a frozen store returns when its context ends",
		"a renewal on a frozen store returns when its context ends",
		"a release on a frozen store returns when its context ends",
	}
	return []broken{
		{
			name: "a call waits for a frozen store", backend: serverBackend(&server{ignoresContext: true}, same),
			caughtBy: append([]string{"a batch on a frozen store is answered after its context has ended"}, frozen...),
		},
		{"a call returns from a frozen store too late", calls(func(ctx context.Context, _ driver.Op, _ driver.Claim, call func(context.Context) error) error {
			err := call(ctx)
			if err != nil {
				time.Sleep(200 * time.Millisecond)
			}
			return err
		}), frozen},
		{"a late call has another ID", serverBackend(&server{late: func(c driver.Claim) driver.Claim { c.ID += " again"; return c }}, same), []string{
			"a store works again after a freeze",
		}},
	}
}

// done is what a driver.Async calls with an answer.
type done = func(i int, a driver.Answer, err error)

// A batcher is a Locker with a Start of its own for calls of one kind.
type batcher struct {
	guard.Locker
	op    driver.Op
	start func(ctx context.Context, claims []driver.Claim, done done)
}

func (b *batcher) Start(ctx context.Context, op driver.Op, claims []driver.Claim, after driver.After, done done) {
	if op == b.op {
		b.start(ctx, claims, done)
		return
	}
	driver.Each{Locker: b.Locker}.Start(ctx, op, claims, after, done)
}

// answeringBatches changes the answers to batches of calls of one kind.
func answeringBatches(op driver.Op, change func(i int, a driver.Answer, err error, done done)) guardtest.Backend {
	return wrapped(func(l guard.Locker) guard.Locker {
		return &batcher{l, op, func(ctx context.Context, claims []driver.Claim, done done) {
			driver.AsyncOf(l).Start(ctx, op, claims, driver.After{}, func(i int, a driver.Answer, err error) { change(i, a, err, done) })
		}}
	})
}

func brokenBatches() []broken {
	reports := []string{"a batch of renewals reports on each claim"}
	both := append([]string{"a batch whose context has ended reports an error for each claim"}, reports...)
	return []broken{
		{"a batch of renewals has one answer for all claims", wrapped(func(l guard.Locker) guard.Locker {
			return &batcher{l, driver.OpRenew, func(ctx context.Context, claims []driver.Claim, done done) {
				all := true
				for _, c := range claims {
					held, _ := l.Renew(ctx, c)
					all = all && held
				}
				for i := range claims {
					done(i, driver.Answer{Held: all}, nil)
				}
			}}
		}), both},
		{"a batch of renewals is not sent", wrapped(func(l guard.Locker) guard.Locker {
			return &batcher{l, driver.OpRenew, func(_ context.Context, claims []driver.Claim, done done) {
				for i := range claims {
					done(i, driver.Answer{Held: true}, nil)
				}
			}}
		}), both},
		{"a batch of renewals is cut short", answeringBatches(driver.OpRenew, func(i int, a driver.Answer, err error, done done) {
			if i < 200 {
				done(i, a, err)
			}
		}), reports},
		{"a batch of renewals is answered twice", answeringBatches(driver.OpRenew, func(i int, a driver.Answer, err error, done done) {
			done(i, a, err)
			done(i, a, err)
		}), both},
		{"a batch of renewals is answered again later", answeringBatches(driver.OpRenew, func(i int, a driver.Answer, err error, done done) {
			done(i, a, err)
			time.AfterFunc(time.Millisecond, func() { done(i, a, err) })
		}), both},
		{"a batch of renewals has one answer too many", wrapped(func(l guard.Locker) guard.Locker {
			return &batcher{l, driver.OpRenew, func(ctx context.Context, claims []driver.Claim, done done) {
				driver.Each{Locker: l}.Start(ctx, driver.OpRenew, claims, driver.After{}, done)
				go done(len(claims), driver.Answer{Held: true}, nil)
			}}
		}), append([]string{"an empty batch reports nothing"}, both...)},
	}
}

func brokenBatchesOfClaims() []broken {
	answers, fails := "a batch of claims is answered one by one", "a batch of claims whose context has ended reports an error for each"
	return []broken{
		{"all claims of a batch are granted", answeringBatches(driver.OpAcquire, func(i int, g driver.Answer, err error, done done) {
			g.State = driver.Granted
			done(i, g, err)
		}), []string{answers}},
		{"all claims of a batch are released", answeringBatches(driver.OpRelease, func(i int, a driver.Answer, err error, done done) {
			a.Held = true
			done(i, a, err)
		}), []string{answers}},
		{"a batch of claims has no errors", answeringBatches(driver.OpAcquire, func(i int, g driver.Answer, _ error, done done) {
			done(i, g, nil)
		}), []string{fails}},
	}
}
