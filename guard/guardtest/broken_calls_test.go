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
		{
			name: "the context is ignored",
			backend: calls(func(ctx context.Context, _ driver.Op, _ driver.Claim, call func(context.Context) error) error {
				return call(context.WithoutCancel(ctx))
			}),
			caughtBy: endedContextChecks(),
		},
		{
			name: "a call whose context has ended takes effect",
			backend: calls(func(ctx context.Context, op driver.Op, c driver.Claim, call func(context.Context) error) error {
				err := call(context.WithoutCancel(ctx))
				if ctx.Err() != nil {
					err = driver.NewStoreError("late", op, c.Key, ctx.Err())
				}
				return err
			}),
			caughtBy: endedContextChecks(),
		},
		{
			name: "errors are not StoreErrors",
			backend: calls(func(ctx context.Context, _ driver.Op, _ driver.Claim, call func(context.Context) error) error {
				return errors.Unwrap(errors.Unwrap(call(ctx)))
			}),
			caughtBy: endedContextChecks(),
		},
		{
			name: "errors do not say what failed",
			backend: calls(func(ctx context.Context, _ driver.Op, c driver.Claim, call func(context.Context) error) error {
				var store *guard.StoreError
				err := call(ctx)
				if errors.As(err, &store) {
					return driver.NewStoreError("vague", "call", c.Key, ctx.Err())
				}
				return err
			}),
			caughtBy: endedContextChecks(),
		},
		{
			name: "errors are permanent",
			backend: calls(func(ctx context.Context, op driver.Op, c driver.Claim, call func(context.Context) error) error {
				if err := call(ctx); err != nil {
					return &guard.StoreError{Backend: "hopeless", Op: op, Key: c.Key, Kind: driver.KindClosed, Err: err}
				}
				return nil
			}),
			caughtBy: endedContextChecks(),
		},
	}
}

func brokenFreezes() []broken {
	frozen := []string{
		"a claim on a frozen store returns when its context ends",
		"a renewal on a frozen store returns when its context ends",
		"a release on a frozen store returns when its context ends",
		"a batch on a frozen store returns when its context ends",
	}
	return []broken{
		{name: "a call waits for a frozen store", backend: serverBackend(&server{ignoresContext: true}, same), caughtBy: frozen},
		{
			name: "a call returns from a frozen store too late",
			backend: calls(func(ctx context.Context, _ driver.Op, _ driver.Claim, call func(context.Context) error) error {
				err := call(ctx)
				if err != nil {
					time.Sleep(200 * time.Millisecond)
				}
				return err
			}),
			caughtBy: frozen,
		},
		{
			name:     "a late call has another ID",
			backend:  serverBackend(&server{late: func(c driver.Claim) driver.Claim { c.ID += " again"; return c }}, same),
			caughtBy: []string{"a store works again after a freeze"},
		},
	}
}

// batcher is a Locker with its own RenewBatch.
type batcher struct {
	guard.Locker
	renew func(ctx context.Context, claims []driver.Claim, report func(int, bool, error))
}

func (b *batcher) RenewBatch(ctx context.Context, claims []driver.Claim, report func(int, bool, error)) {
	b.renew(ctx, claims, report)
}

// reporting changes the reports of RenewBatch.
func reporting(change func(i int, held bool, err error, report func(int, bool, error))) guardtest.Backend {
	return wrapped(func(l guard.Locker) guard.Locker {
		return &batcher{l, func(ctx context.Context, claims []driver.Claim, report func(int, bool, error)) {
			l.(driver.BatchRenewer).RenewBatch(ctx, claims, func(i int, held bool, err error) { change(i, held, err, report) })
		}}
	})
}

func brokenBatches() []broken {
	reports := []string{"a batch of renewals reports on each claim"}
	both := append([]string{"a batch whose context has ended reports an error for each claim"}, reports...)
	return []broken{
		{
			name: "a batch of renewals has one answer for all claims",
			backend: wrapped(func(l guard.Locker) guard.Locker {
				return &batcher{l, func(ctx context.Context, claims []driver.Claim, report func(int, bool, error)) {
					all := true
					for _, c := range claims {
						held, _ := l.Renew(ctx, c)
						all = all && held
					}
					for i := range claims {
						report(i, all, nil)
					}
				}}
			}),
			caughtBy: both,
		},
		{
			name: "a batch of renewals is not sent",
			backend: wrapped(func(l guard.Locker) guard.Locker {
				return &batcher{l, func(_ context.Context, claims []driver.Claim, report func(int, bool, error)) {
					for i := range claims {
						report(i, true, nil)
					}
				}}
			}),
			caughtBy: both,
		},
		{
			name: "a batch of renewals is cut short",
			backend: reporting(func(i int, held bool, err error, report func(int, bool, error)) {
				if i < 200 {
					report(i, held, err)
				}
			}),
			caughtBy: reports,
		},
		{
			name: "a batch of renewals reports twice",
			backend: reporting(func(i int, held bool, err error, report func(int, bool, error)) {
				report(i, held, err)
				report(i, held, err)
			}),
			caughtBy: both,
		},
		{
			name: "a batch of renewals reports late",
			backend: reporting(func(i int, held bool, err error, report func(int, bool, error)) {
				go func() {
					time.Sleep(time.Millisecond)
					report(i, held, err)
				}()
			}),
			caughtBy: both,
		},
		{
			name: "a batch of renewals reports again later",
			backend: reporting(func(i int, held bool, err error, report func(int, bool, error)) {
				report(i, held, err)
				time.AfterFunc(time.Millisecond, func() { report(i, held, err) })
			}),
			caughtBy: both,
		},
		{
			name: "a batch of renewals makes one report too many",
			backend: wrapped(func(l guard.Locker) guard.Locker {
				return &batcher{l, func(ctx context.Context, claims []driver.Claim, report func(int, bool, error)) {
					l.(driver.BatchRenewer).RenewBatch(ctx, claims, report)
					go report(len(claims), true, nil)
				}}
			}),
			caughtBy: append([]string{"an empty batch reports nothing"}, both...),
		},
	}
}
