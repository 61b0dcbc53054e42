package guardtest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
)

func freezeChecks() []check {
	return []check{
		{name: "a frozen store does not hold up a claim", run: frozenAcquire, needs: freezes},
		{name: "a frozen store does not hold up a renewal", run: frozenRenew, needs: freezes},
		{name: "a frozen store does not hold up a release", run: frozenRelease, needs: freezes},
		{name: "a frozen store does not hold up a batch of renewals", run: frozenBatch, needs: freezes},
		{name: "a store that was frozen works again", run: thawed, needs: freezes},
	}
}

func freezes(s Store) bool { return s.Freeze != nil }

const (
	// prompt is how soon after its context's end a call has to return.
	prompt = 150 * time.Millisecond
	// soon is when the context of a call to a frozen store ends.
	soon = 60 * time.Millisecond
)

// freeze freezes the store until thaw, or the end of the check.
func (s *subject) freeze() (thaw func()) {
	thaw = sync.OnceFunc(s.store.Freeze(s))
	s.Cleanup(thaw)
	return thaw
}

// An ending gives a context one of the two ends that it can have.
type ending struct {
	name string
	of   func(context.Context) (context.Context, context.CancelFunc)
}

func endings() []ending {
	deadline := func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, soon)
	}
	cancelled := func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(soon, cancel)
		return ctx, cancel
	}
	return []ending{{"deadline", deadline}, {"cancel", cancelled}}
}

// promptly checks that ask, about the key "key", returns an error soon after its context has ended. As
// a slow machine may be what was late, once in three tries is enough: a store that does not heed the
// context never is.
func (s *subject) promptly(op guard.Op, ask func(context.Context) error) {
	s.Helper()
	for _, end := range endings() {
		var late time.Duration
		for range 3 {
			if late = s.lateness(op, end.of, ask); late <= prompt {
				break
			}
		}
		require.LessOrEqual(s, late, prompt, "how long after its context's %s the call returned", end.name)
	}
}

// lateness returns how long after its context's end ask returned.
func (s *subject) lateness(
	op guard.Op,
	end func(context.Context) (context.Context, context.CancelFunc), ask func(context.Context) error,
) time.Duration {
	s.Helper()
	ctx, cancel := end(s.Context())
	defer cancel()
	var ended, returned time.Time
	stamped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { ended = time.Now(); close(stamped) })
	defer stop()
	answered := make(chan error, 1)
	go func() {
		err := ask(ctx)
		returned = time.Now()
		answered <- err
	}()
	select {
	case err := <-answered:
		s.storeError(err, op, "key")
	case <-time.After(patience):
		require.Fail(s, "the call does not return")
	}
	<-stamped
	return returned.Sub(ended)
}

func frozenAcquire(s *subject) {
	s.here.take(s.claim("warm"))
	s.freeze()
	s.promptly(guard.OpAcquire, func(ctx context.Context) error {
		_, err := s.here.locker.TryAcquire(ctx, s.claim("key"))
		return err
	})
}

func frozenRenew(s *subject) {
	c := s.claim("key")
	s.here.take(c)
	s.freeze()
	s.promptly(guard.OpRenew, func(ctx context.Context) error {
		_, err := s.here.locker.Renew(ctx, c)
		return err
	})
}

func frozenRelease(s *subject) {
	c := s.claim("key")
	s.here.take(c)
	s.freeze()
	s.promptly(guard.OpRelease, func(ctx context.Context) error {
		_, err := s.here.locker.Release(ctx, c, guard.After{})
		return err
	})
}

func frozenBatch(s *subject) {
	claims := []guard.Claim{s.claim("key"), s.claim("key"), s.claim("key")}
	s.here.take(claims[0])
	s.freeze()
	var last *batch
	s.promptly(guard.OpRenew, func(ctx context.Context) error {
		b := s.renewBatch(ctx, claims)
		last = b
		b.mu.Lock()
		defer b.mu.Unlock()
		var errs []error
		for i := range claims {
			for _, a := range b.answers[i] {
				errs = append(errs, a.err)
			}
		}
		return errors.Join(errs...)
	})
	for i := range claims {
		s.storeError(last.answer(s, i).err, guard.OpRenew, "key")
	}
	last.settled(s, len(claims))
}

// thawed leaves claims, renewals and releases under way in a frozen store. They may still arrive when
// it has thawed, in any order, and releasing the claims by their IDs has to put that right.
func thawed(s *subject) {
	claimed, renewed, released := s.claim("claimed"), s.claim("renewed"), s.claim("released")
	s.here.take(renewed)
	s.here.take(released)
	thaw := s.freeze()
	var all sync.WaitGroup
	for range 3 {
		ctx, cancel := context.WithTimeout(s.Context(), soon)
		defer cancel()
		all.Go(func() { _, _ = s.here.locker.TryAcquire(ctx, claimed) })
		all.Go(func() { _, _ = s.here.locker.Renew(ctx, renewed) })
		all.Go(func() { _, _ = s.here.locker.Release(ctx, released, guard.After{}) })
	}
	all.Wait()
	thaw()
	time.Sleep(short) // what is on its way arrives now, or most of it

	for _, c := range []guard.Claim{claimed, renewed, released} {
		s.eventually(func() bool {
			ctx, cancel := context.WithTimeout(s.Context(), time.Second)
			defer cancel()
			_, err := s.here.locker.Release(ctx, c, guard.After{})
			return err == nil
		}, "the store answers again")
		s.eventually(func() bool {
			s.here.release(c, guard.After{})
			rival := s.claim(c.Key)
			if s.there.acquire(rival).State != guard.Granted {
				return false
			}
			s.there.give(rival, guard.After{})
			return true
		}, "a claim that arrived late is cleaned up")
	}
	c := s.claim("afterwards")
	s.here.take(c)
	require.True(s, s.there.renew(c))
	s.there.give(c, guard.After{})
}
