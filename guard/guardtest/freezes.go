package guardtest

import (
	"context"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard/driver"
)

func freezeChecks() []check {
	return []check{
		{name: "a claim on a frozen store returns when its context ends", run: frozenAcquire, needs: freezes, alone: true},
		{name: "a renewal on a frozen store returns when its context ends", run: frozenRenew, needs: freezes, alone: true},
		{name: "a release on a frozen store returns when its context ends", run: frozenRelease, needs: freezes, alone: true},
		{name: "a batch on a frozen store is answered after its context has ended", run: frozenBatch, needs: freezes, alone: true},
		{name: "a store works again after a freeze", run: thawed, needs: freezes, alone: true},
	}
}

func freezes(b Backend) bool { return b.Freeze != nil }

const (
	// prompt is how soon after the end of its context a call must return.
	prompt = 150 * time.Millisecond
	// soon is when the context of a call to a frozen store ends.
	soon = 60 * time.Millisecond
)

// freeze freezes the store until thaw is called or the check ends.
func (s *subject) freeze() (thaw func()) {
	thaw = sync.OnceFunc(s.backend.Freeze(s))
	s.Cleanup(thaw)
	return thaw
}

// An ending is one of the two ways in which a context can end.
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

// promptly checks that the call, for the key "key", returns an error soon after the end of its
// context. One success in three tries is enough, because a slow machine may cause a delay. A
// backend that ignores its context never succeeds.
func (s *subject) promptly(op driver.Op, call func(context.Context) error) {
	s.Helper()
	for _, end := range endings() {
		var late time.Duration
		for range 3 {
			if late = s.lateness(op, end.of, call); late <= prompt {
				break
			}
		}
		require.LessOrEqual(s, late, prompt, "how long after the %s of its context the call returned", end.name)
	}
}

// lateness returns how long after the end of its context the call returned.
func (s *subject) lateness(
	op driver.Op,
	end func(context.Context) (context.Context, context.CancelFunc), call func(context.Context) error,
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
		err := call(ctx)
		returned = time.Now()
		answered <- err
	}()
	select {
	case err := <-answered:
		s.storeError(err, op, "key")
	case <-time.After(patience):
		require.Fail(s, "the call has not returned")
	}
	<-stamped
	return returned.Sub(ended)
}

func frozenAcquire(s *subject) {
	s.here.mustAcquire(s.claim("warm"))
	s.freeze()
	s.promptly(driver.OpAcquire, func(ctx context.Context) error {
		_, err := s.here.locker.TryAcquire(ctx, s.claim("key"))
		return err
	})
}

func frozenRenew(s *subject) {
	c := s.claim("key")
	s.here.mustAcquire(c)
	s.freeze()
	s.promptly(driver.OpRenew, func(ctx context.Context) error {
		_, err := s.here.locker.Renew(ctx, c)
		return err
	})
}

func frozenRelease(s *subject) {
	c := s.claim("key")
	s.here.mustAcquire(c)
	s.freeze()
	s.promptly(driver.OpRelease, func(ctx context.Context) error {
		_, err := s.here.locker.Release(ctx, c, driver.After{})
		return err
	})
}

func frozenBatch(s *subject) {
	claims := []driver.Claim{s.claim("key"), s.claim("key"), s.claim("key")}
	s.here.mustAcquire(claims[0])
	s.freeze()
	ctx, cancel := context.WithTimeout(s.Context(), soon)
	defer cancel()
	b := s.start(ctx, driver.OpRenew, claims)
	for i := range claims {
		s.storeError(b.answer(s, i).err, driver.OpRenew, "key")
	}
	b.settled(s, len(claims))
}

// thawed leaves acquires, renewals and releases under way in a frozen store. After the thaw, they
// may still arrive in any order. Releasing the claims by their IDs must clean all of them up.
func thawed(s *subject) {
	claimed, renewed, released := s.claim("claimed"), s.claim("renewed"), s.claim("released")
	s.here.mustAcquire(renewed)
	s.here.mustAcquire(released)
	thaw := s.freeze()
	var all sync.WaitGroup
	for range 3 {
		ctx, cancel := context.WithTimeout(s.Context(), soon)
		defer cancel()
		all.Go(func() { _, _ = s.here.locker.TryAcquire(ctx, claimed) })
		all.Go(func() { _, _ = s.here.locker.Renew(ctx, renewed) })
		all.Go(func() { _, _ = s.here.locker.Release(ctx, released, driver.After{}) })
	}
	all.Wait()
	thaw()
	time.Sleep(short) // most of the calls under way arrive now

	for _, c := range []driver.Claim{claimed, renewed, released} {
		s.eventually(func() bool {
			ctx, cancel := context.WithTimeout(s.Context(), time.Second)
			defer cancel()
			_, err := s.here.locker.Release(ctx, c, driver.After{})
			return err == nil
		}, "the store answers again")
		s.eventually(func() bool {
			s.here.release(c, driver.After{})
			rival := s.claim(c.Key)
			if s.there.acquire(rival).State != driver.Granted {
				return false
			}
			s.there.mustRelease(rival, driver.After{})
			return true
		}, "a claim that arrived late is cleaned up")
	}
	c := s.claim("afterwards")
	s.here.mustAcquire(c)
	require.True(s, s.there.renew(c))
	s.there.mustRelease(c, driver.After{})
}
