package guard

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/internal/clock"
	"github.com/seed-1795987d/onerun/guard/internal/queue"
	"github.com/seed-1795987d/onerun/internal/lazyctx"
)

// A multiAcquire is a call for several keys, on its way to all of them.
type multiAcquire struct {
	guard    *Guard
	ctx      context.Context
	set      *settings
	start    time.Duration
	deadline time.Duration // until when it waits
	keys     []*keyState   // sorted by what the store calls them
}

// keyState is one of several keys.
type keyState struct {
	key, stored string
	lease       *Lease // nil while it is not held
	err         error  // why it is not

	call *acquisition            // while it is asked for
	get  func() (*holder, error) // how call gets its lease
}

// newMultiAcquire checks and sorts the keys. Those that ctx holds are joined.
func (g *Guard) newMultiAcquire(ctx context.Context, keys []string, opts []Option) (*multiAcquire, error) {
	if len(keys) == 0 {
		return nil, &SettingError{Setting: "keys", Reason: "must not be empty"}
	}
	s := &multiAcquire{guard: g, ctx: ctx}
	for _, key := range keys {
		set, stored, err := g.prepare(key, opts)
		if err != nil {
			return nil, err
		}
		s.set = set
		s.keys = append(s.keys, &keyState{key: key, stored: stored})
	}
	switch {
	case s.set.window > 0:
		return nil, &SettingError{Setting: s.set.onceOption(), Value: s.set.window.String(), Reason: "must be 0 for several keys"}
	case s.set.minHold > 0:
		return nil, &SettingError{Setting: "WithMinHold", Value: s.set.minHold.String(), Reason: "must be 0 for several keys"}
	}
	s.set = s.set.on()
	slices.SortFunc(s.keys, func(a, b *keyState) int { return cmp.Compare(a.stored, b.stored) })
	s.keys = slices.CompactFunc(s.keys, func(a, b *keyState) bool { return a.stored == b.stored })
	s.start = g.clock.Now()
	s.deadline = s.start + min(s.set.wait, clock.Never-s.start)
	for _, k := range s.keys {
		h := g.holding(ctx, k.stored)
		if h == nil {
			continue
		}
		if err := h.allows(ctx, s.set, k.key); err != nil {
			return nil, err
		}
		k.lease = &Lease{holder: h, role: leaseFound}
	}
	return s, nil
}

// acquire acquires all the keys. It asks for all at once. If some are busy, it releases the keys
// behind the first busy key, waits for that key, and asks for the rest again.
func (s *multiAcquire) acquire() error {
	for {
		first := s.ask()
		if first == nil {
			return nil
		}
		s.releaseKeys(func(k *keyState) bool { return k.stored > first.stored })
		left := s.deadline - s.guard.clock.Now()
		if s.set.wait <= 0 || left <= 0 || !errors.Is(first.err, ErrBusy) && !errors.Is(first.err, ErrStore) {
			s.reportSkip(first)
			return first.err
		}
		h, err := s.guard.acquire(s.ctx, first.key, first.stored, s.own(left))
		if err != nil {
			return err
		}
		first.lease, first.err = &h.lease, nil
		s.releaseKeys(func(k *keyState) bool { return !k.lease.Valid() }) // meanwhile
	}
}

// ask asks for all keys that are not held, once. It returns the first one that is not granted.
// Hooks of different keys run at once: one that blocks delays only its own key.
func (s *multiAcquire) ask() *keyState {
	own := s.own(0)
	own.probe = true
	missing := slices.DeleteFunc(slices.Clone(s.keys), func(k *keyState) bool { return k.lease != nil })
	for _, k := range missing {
		if k.call, k.err = s.guard.newAcquisition(s.ctx, k.key, k.stored, own); k.err == nil {
			defer k.call.exit()
			k.get = k.call.get
		}
	}
	if len(own.hooks) > 0 {
		eachKey(missing, func(k *keyState) error { k.call.begin(); return nil })
	}
	s.acquireBatch(missing)
	eachKey(missing, func(k *keyState) error {
		h, err := k.call.end(k.get())
		if h != nil {
			k.lease = &h.lease
		}
		return err
	})
	if i := slices.IndexFunc(missing, func(k *keyState) bool { return k.err != nil }); i >= 0 {
		return missing[i]
	}
	return nil
}

// eachKey calls f at once for each key that has no error. It notes the error: errAborted if f does
// not return.
func eachKey(keys []*keyState, f func(k *keyState) error) {
	keys = slices.DeleteFunc(slices.Clone(keys), func(k *keyState) bool { return k.err != nil })
	each(len(keys), func(i int) {
		keys[i].err = driver.NewStoreError("", driver.OpAcquire, keys[i].stored, errAborted)
		keys[i].err = f(keys[i])
	})
}

// acquireBatch makes the first request for all keys that have no error, in one call to the store,
// if the Locker can. These requests pass the queues by: each of two calls could be the head of the
// queue that the other one waits in.
func (s *multiAcquire) acquireBatch(keys []*keyState) {
	if s.guard.async == nil {
		return
	}
	var claims []driver.Claim
	var answers []queue.Answer
	for _, k := range keys {
		if k.err != nil {
			continue
		}
		a := k.call
		if h, err := a.share(); h != nil || err != nil {
			k.get = func() (*holder, error) { return h, err }
			continue
		}
		a.prepare(a.set.joins())
		i := len(claims)
		claims, answers = append(claims, a.claim), append(answers, queue.Answer{})
		k.get = func() (*holder, error) {
			if h, err := a.answered(answers[i].Grant, answers[i].Err); h != nil || err != nil {
				return h, err
			}
			return a.get()
		}
	}
	if len(claims) > 0 {
		ctx := s.guard.callContext(s.ctx, requestTimeout(s.set.ttl), 0)
		defer ctx.End(nil)
		s.guard.await(ctx, driver.OpAcquire, claims, func(i int, g driver.Answer, err error) { answers[i] = queue.Answer{Grant: g, Err: err} })
	}
}

// callContext returns the context of a call to the store. The caller must end it.
func (g *Guard) callContext(ctx context.Context, timeout, grace time.Duration) *lazyctx.Context {
	call := lazyctx.NewCall(ctx, g.clock.Time(g.clock.Now()+timeout), grace)
	call.Stop = g.stopCalls
	return call
}

// own returns the settings for one of the keys. The maximum hold begins when all are held.
func (s *multiAcquire) own(wait time.Duration) *settings {
	own := *s.set
	own.maxHold, own.wait = 0, wait
	return &own
}

// releaseKeys releases the keys that are held, and for which the function returns true.
func (s *multiAcquire) releaseKeys(which func(*keyState) bool) {
	var leases []*Lease
	for _, k := range s.keys {
		if k.lease != nil && k.lease.role == leaseOwned && which(k) {
			leases = append(leases, k.lease)
			k.lease = nil
		}
	}
	if len(leases) > 0 {
		_ = s.guard.releaseAll(s.ctx, leases) // the Guard keeps trying
	}
}

// abandon releases all keys, unless newLeases has returned them.
func (s *multiAcquire) abandon() { s.releaseKeys(func(*keyState) bool { return true }) }

// releaseAll releases the leases at once, and returns all errors. A release without an answer must
// not hide the loss of another lease.
func (g *Guard) releaseAll(ctx context.Context, leases []*Lease) error {
	releases, results := make([]release, len(leases)), make([]error, len(leases))
	for i, l := range leases {
		defer releases[i].finish()
		releases[i].begin(l.holder, releaseOptions{})
	}
	g.releaseBatch(ctx, releases)
	each(len(leases), func(i int) {
		// the result if a call does not return
		results[i] = driver.NewStoreError("", driver.OpRelease, leases[i].Key(), errAborted)
		results[i] = releases[i].end(ctx)
	})
	return errors.Join(results...)
}

// releaseBatch sends the releases in one call to the store, if the Locker can. It leaves those
// without an answer to release.end.
func (g *Guard) releaseBatch(ctx context.Context, releases []release) {
	if g.async == nil {
		return
	}
	var sent []*release
	var claims []driver.Claim
	for i := range releases {
		if r := &releases[i]; r.state == releaseSending {
			sent, claims = append(sent, r), append(claims, r.claim)
		}
	}
	if len(sent) == 0 {
		return
	}
	answers := make([]queue.Answer, len(sent))
	call := g.callContext(ctx, releaseTimeout(sent[0].claim.TTL), releaseGrace)
	defer call.End(nil)
	g.await(call, driver.OpRelease, claims, func(i int, a driver.Answer, err error) { answers[i] = queue.Answer{Grant: a, Err: err} })
	for i, r := range sent {
		if err := r.noteCall(r.at, answers[i].Err); err == nil {
			r.answered(answers[i].Grant.Held, nil)
		}
	}
}

// reportSkip calls the hooks for a call that gives up because of a busy key.
func (s *multiAcquire) reportSkip(k *keyState) {
	hs := hooks(s.set.hooks)
	if len(hs) == 0 || s.set.probe || !errors.Is(k.err, ErrBusy) && !errors.Is(k.err, ErrDone) {
		return
	}
	e := SkipEvent{Event: s.guard.event(s.set, k.key, "", s.start), Err: k.err}
	e.State = driver.Busy
	var busy *BusyError
	if errors.As(k.err, &busy) {
		e.Left, e.Label = busy.Left, busy.Label
	}
	hs.call(func(h *Hook) { send(s.ctx, h.Skip, e) })
}
