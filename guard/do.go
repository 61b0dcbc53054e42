package guard

import "context"

// Do runs f under a lease on the key, and gives the lease back when f has ended.
//
// It returns what f returned, or, if f did not run: ErrBusy if another owner holds the key and did not
// release it within WithWait, ErrDone if the work is done (WithOnce), ErrClosed, the error of ctx if
// that ended first, ErrStore if the store could not be asked, a *KeyError or a *SettingError. If f did
// run, Do returns ErrLost when the lease was lost on the way, also where f returned nil; what f returned
// is then inside the error.
//
// The context of f is derived from ctx. It ends, with ErrLost as its cause, before the lease ends in the
// store, and f should then stop. FromContext and Fence find the lease in it. The lease is renewed until f
// has returned, also after its context has ended. If f panics, the lease is given back and the panic goes on.
//
// Do for a key that ctx holds already joins that lease: f runs at once, under the same fence, and
// options other than WithHook change nothing.
func (g *Guard) Do(ctx context.Context, key string, f func(context.Context) error, opts ...Option) error {
	if f == nil {
		return &SettingError{Setting: "f", Reason: "must not be nil"}
	}
	set, stored, err := g.prepare(key, opts)
	if err != nil {
		return err
	}
	if h := g.holding(ctx, stored); h != nil {
		return h.join(ctx, f)
	}
	h, err := g.acquire(ctx, key, stored, set)
	if err != nil {
		return err
	}
	return h.do(ctx, f)
}

// Wrap returns f as a function that runs under a lease on the key, as Do does. A key, option or f
// that cannot work is an error here.
func (g *Guard) Wrap(key string, f func(context.Context) error, opts ...Option) (func(context.Context) error, error) {
	if f == nil {
		return nil, &SettingError{Setting: "f", Reason: "must not be nil"}
	}
	if _, _, err := g.prepare(key, opts); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return g.Do(ctx, key, f, opts...) }, nil
}

// DoValue is Guard.Do for a function that returns a value. The value is what f returned; it is the
// zero value if f did not run.
func DoValue[T any](ctx context.Context, g *Guard, key string, f func(context.Context) (T, error), opts ...Option) (T, error) {
	var value T
	if f == nil {
		return value, &SettingError{Setting: "f", Reason: "must not be nil"}
	}
	err := g.Do(ctx, key, func(ctx context.Context) (err error) {
		value, err = f(ctx)
		return err
	}, opts...)
	return value, err
}

// Acquire takes a lease on the key, to be held for as long as the caller likes: it is renewed until
// Release or Finish, one of which the caller must call. The end of ctx does not release it. It
// returns the errors of Do.
//
// Where ctx holds the key already, Acquire joins that lease: releasing what it returns does nothing.
func (g *Guard) Acquire(ctx context.Context, key string, opts ...Option) (*Lease, error) {
	set, stored, err := g.prepare(key, opts)
	if err != nil {
		return nil, err
	}
	if h := g.holding(ctx, stored); h != nil {
		if lost, end := h.ended(); lost != nil || end != nil {
			return nil, h.overtaken(ctx, nil)
		}
		return &Lease{hold: h, ctx: &leaseContext{Context: ctx, hold: h}, joined: true}, nil
	}
	h, err := g.acquire(ctx, key, stored, set)
	if err != nil {
		return nil, err
	}
	return &h.lease, nil
}

// prepare returns the settings of a call and the key by which the store knows it.
func (g *Guard) prepare(key string, opts []Option) (set *settings, stored string, err error) {
	set, err = g.set.with(opts)
	if err == nil {
		err = g.checkFair(set)
	}
	if err != nil {
		return set, "", err
	}
	if set.namespace == "" || key == "" {
		return set, key, g.checkKey(key)
	}
	stored = set.namespace + ":" + key
	return set, stored, g.checkKey(stored)
}
