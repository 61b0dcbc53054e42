package guard

import (
	"context"
	"slices"
)

// Do runs f under a lease on the key, and releases the lease when f has ended.
//
// If f ran, Do returns what f returned, with two exceptions. It returns ErrLost or ErrClosed if
// the lease ended while f ran, even if f returned nil; what f returned is then inside the error.
// It returns ErrMarker if f returned nil, but the done marker of WithOnce may be missing.
//
// If f did not run, Do returns one of these errors:
//
//   - ErrBusy: another owner held the key for as long as WithWait allows
//   - ErrDone: the work is done (WithOnce)
//   - ErrLost: ctx already holds the key, but that lease is lost
//   - ErrClosed: the Guard was closed
//   - ErrStore: the store could not be asked
//   - the error of ctx, if ctx ended first
//   - a *KeyError or a *SettingError
//
// Ran distinguishes the two cases.
//
// The context of f is derived from ctx. While the process runs, it ends before the lease ends in
// the store, with ErrLost as its cause, and f should then stop. FromContext and Fence find the
// lease in it. The lease is renewed until f has returned, even after its context has ended. If f
// panics or ends its goroutine, the lease is released and the panic propagates.
//
// Do for a key that ctx already holds joins that lease: f runs at once, under the same fence.
// Options other than WithHook have no effect then. A WithOnce or WithOncePer that the lease does
// not have would leave no done marker, so it is a *SettingError.
func (g *Guard) Do(ctx context.Context, key string, f func(context.Context) error, opts ...Option) error {
	if f == nil {
		return errNoFunction
	}
	l, set, err := g.lease(ctx, key, opts)
	if err != nil {
		return err
	}
	h := l.holder
	r := run{holder: h, hooks: h.set.hooks, ctx: l.ctx, caller: set.runContext(ctx), releases: true}
	if l.role == leaseJoined {
		defer l.end()
		more := hooks(set.hooks[len(g.set.hooks):]).on()
		r = run{holder: h, hooks: append(slices.Clip(h.set.hooks), more...), ctx: l.ctx, caller: l.ctx, joined: true}
	}
	return r.run(f)
}

// lease returns a lease on the key, and the settings of the call. It joins a lease that ctx holds.
func (g *Guard) lease(ctx context.Context, key string, opts []Option) (*Lease, *settings, error) {
	set, stored, err := g.prepare(key, opts)
	if err != nil {
		return nil, nil, err
	}
	if h := g.holding(ctx, stored); h != nil {
		if err := h.allows(ctx, set, key); err != nil {
			return nil, nil, err
		}
		joined, end := h.joined(set.runContext(ctx))
		return &Lease{holder: h, ctx: &leaseContext{Context: joined, holder: h}, role: leaseJoined, end: end}, set, nil
	}
	if len(set.hooks) > 0 {
		set = set.on()
	}
	h, err := g.acquire(ctx, key, stored, set)
	if err != nil {
		return nil, nil, err
	}
	return &h.lease, set, nil
}

// Check returns the error of Do for a key or for options that cannot work, a *KeyError or a
// *SettingError, and nil otherwise. It does not ask the store.
func (g *Guard) Check(key string, opts ...Option) error {
	_, _, err := g.prepare(key, opts)
	return err
}

// Wrap returns f as a function that runs under a lease on the key, as Do does. A key, an option or
// an f that cannot work is an error of Wrap.
func (g *Guard) Wrap(key string, f func(context.Context) error, opts ...Option) (func(context.Context) error, error) {
	if f == nil {
		return nil, errNoFunction
	}
	if err := g.Check(key, opts...); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return g.Do(ctx, key, f, opts...) }, nil
}

// DoValue is Guard.Do for a function that returns a value. The value is what f returned. It is the
// zero value if f did not run.
func DoValue[T any](
	ctx context.Context, g *Guard, key string, f func(context.Context) (T, error), opts ...Option,
) (T, error) {
	var value T
	if f == nil {
		return value, errNoFunction
	}
	err := g.Do(ctx, key, func(ctx context.Context) (err error) {
		value, err = f(ctx)
		return err
	}, opts...)
	return value, err
}

// Acquire acquires a lease on the key. The Guard renews the lease until the caller calls Release
// or Complete, and one of them must be called. The end of ctx does not release it. Acquire returns
// the errors of Do.
//
// If ctx already holds the key, Acquire joins that lease. Releasing the result then ends only the
// context of the result.
func (g *Guard) Acquire(ctx context.Context, key string, opts ...Option) (*Lease, error) {
	l, _, err := g.lease(ctx, key, opts)
	return l, err
}
