package guardtest_test

import (
	"context"
	"errors"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

// calls has every call of a Locker's go through one function.
func calls(through func(ctx context.Context, op guard.Op, c guard.Claim, call func(context.Context) error) error) guardtest.Store {
	return wrapped(func(l guard.Locker) guard.Locker {
		return &twist{
			Locker: l,
			acquire: func(ctx context.Context, c guard.Claim) (g guard.Grant, err error) {
				err = through(ctx, guard.OpAcquire, c, func(ctx context.Context) (err error) { g, err = l.TryAcquire(ctx, c); return err })
				return g, err
			},
			renew: func(ctx context.Context, c guard.Claim) (held bool, err error) {
				err = through(ctx, guard.OpRenew, c, func(ctx context.Context) (err error) { held, err = l.Renew(ctx, c); return err })
				return held && err == nil, err
			},
			release: func(ctx context.Context, c guard.Claim, after guard.After) (held bool, err error) {
				err = through(ctx, guard.OpRelease, c, func(ctx context.Context) (err error) { held, err = l.Release(ctx, c, after); return err })
				return held && err == nil, err
			},
		}
	})
}

// over are the checks of contexts that have ended.
func over() []string {
	return []string{
		"a claim whose context is over changes nothing",
		"a renewal whose context is over changes nothing",
		"a release whose context is over changes nothing",
		"a batch of renewals whose context is over fails one by one",
	}
}

func brokenContexts() []broken {
	return []broken{
		{
			name: "the context is ignored",
			store: calls(func(ctx context.Context, _ guard.Op, _ guard.Claim, call func(context.Context) error) error {
				return call(context.WithoutCancel(ctx))
			}),
			caughtBy: over(),
		},
		{
			name: "a call whose context is over takes effect",
			store: calls(func(ctx context.Context, op guard.Op, c guard.Claim, call func(context.Context) error) error {
				err := call(context.WithoutCancel(ctx))
				if ctx.Err() != nil {
					err = guard.NewStoreError("late", op, c.Key, ctx.Err())
				}
				return err
			}),
			caughtBy: over(),
		},
		{
			name: "errors are bare",
			store: calls(func(ctx context.Context, _ guard.Op, _ guard.Claim, call func(context.Context) error) error {
				return errors.Unwrap(errors.Unwrap(call(ctx)))
			}),
			caughtBy: over(),
		},
		{
			name: "errors do not say what failed",
			store: calls(func(ctx context.Context, _ guard.Op, c guard.Claim, call func(context.Context) error) error {
				var store *guard.StoreError
				err := call(ctx)
				if errors.As(err, &store) {
					return guard.NewStoreError("vague", "call", c.Key, ctx.Err())
				}
				return err
			}),
			caughtBy: over(),
		},
		{
			name: "errors say that asking again cannot help",
			store: calls(func(ctx context.Context, op guard.Op, c guard.Claim, call func(context.Context) error) error {
				if err := call(ctx); err != nil {
					return &guard.StoreError{Store: "hopeless", Op: op, Key: c.Key, Kind: guard.KindClosed, Err: err}
				}
				return nil
			}),
			caughtBy: over(),
		},
	}
}

func brokenFreezes() []broken {
	held := []string{
		"a frozen store does not hold up a claim",
		"a frozen store does not hold up a renewal",
		"a frozen store does not hold up a release",
		"a frozen store does not hold up a batch of renewals",
	}
	return []broken{
		{name: "a call waits for a frozen store", store: serverStore(&server{deaf: true}, same), caughtBy: held},
		{
			name: "a call waits for a frozen store a while longer",
			store: calls(func(ctx context.Context, _ guard.Op, _ guard.Claim, call func(context.Context) error) error {
				err := call(ctx)
				if err != nil {
					time.Sleep(200 * time.Millisecond)
				}
				return err
			}),
			caughtBy: held,
		},
		{
			name:     "what arrives late has another ID",
			store:    serverStore(&server{late: func(c guard.Claim) guard.Claim { c.ID += " again"; return c }}, same),
			caughtBy: []string{"a store that was frozen works again"},
		},
	}
}

// batcher is a Locker with a batch of its own.
type batcher struct {
	guard.Locker
	renew func(ctx context.Context, claims []guard.Claim, report func(int, bool, error))
}

func (b *batcher) RenewBatch(ctx context.Context, claims []guard.Claim, report func(int, bool, error)) {
	b.renew(ctx, claims, report)
}

// reporting changes what a batch reports.
func reporting(change func(i int, held bool, err error, report func(int, bool, error))) guardtest.Store {
	return wrapped(func(l guard.Locker) guard.Locker {
		return &batcher{l, func(ctx context.Context, claims []guard.Claim, report func(int, bool, error)) {
			l.(guard.BatchRenewer).RenewBatch(ctx, claims, func(i int, held bool, err error) { change(i, held, err, report) })
		}}
	})
}

func brokenBatches() []broken {
	answered := []string{"a batch of renewals is answered one by one"}
	both := append([]string{"a batch of renewals whose context is over fails one by one"}, answered...)
	return []broken{
		{
			name: "a batch of renewals is answered as one",
			store: wrapped(func(l guard.Locker) guard.Locker {
				return &batcher{l, func(ctx context.Context, claims []guard.Claim, report func(int, bool, error)) {
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
			store: wrapped(func(l guard.Locker) guard.Locker {
				return &batcher{l, func(_ context.Context, claims []guard.Claim, report func(int, bool, error)) {
					for i := range claims {
						report(i, true, nil)
					}
				}}
			}),
			caughtBy: both,
		},
		{
			name: "a batch of renewals is cut short",
			store: reporting(func(i int, held bool, err error, report func(int, bool, error)) {
				if i < 200 {
					report(i, held, err)
				}
			}),
			caughtBy: answered,
		},
		{
			name: "a batch of renewals reports twice",
			store: reporting(func(i int, held bool, err error, report func(int, bool, error)) {
				report(i, held, err)
				report(i, held, err)
			}),
			caughtBy: both,
		},
		{
			name: "a batch of renewals reports late",
			store: reporting(func(i int, held bool, err error, report func(int, bool, error)) {
				go func() {
					time.Sleep(time.Millisecond)
					report(i, held, err)
				}()
			}),
			caughtBy: both,
		},
		{
			name: "a batch of renewals reports again later",
			store: reporting(func(i int, held bool, err error, report func(int, bool, error)) {
				report(i, held, err)
				time.AfterFunc(time.Millisecond, func() { report(i, held, err) })
			}),
			caughtBy: both,
		},
		{
			name: "a batch of renewals reports once too often",
			store: wrapped(func(l guard.Locker) guard.Locker {
				return &batcher{l, func(ctx context.Context, claims []guard.Claim, report func(int, bool, error)) {
					l.(guard.BatchRenewer).RenewBatch(ctx, claims, report)
					go report(len(claims), true, nil)
				}}
			}),
			caughtBy: append([]string{"a batch of no renewals reports nothing"}, both...),
		},
	}
}
