package guard_test

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

// An exit is a row of the table of exits. It puts a call into a state and then ends the call in
// some way. exitScene.check makes the same five checks for every row.
type exit struct {
	state, how string
	play       func(s *exitScene)
	// closes means that the row closes the Guard itself. The Guard then refuses its own waiters.
	closes bool
	// closeError is part of the expected error of Close. It is empty if Close must succeed.
	closeError string
}

// An exitScene is the Guard of one row, with a store whose answers the row replaces. The subject
// is the call under test. Two more calls wait for its key: one of the same Guard, and one of
// another process.
type exitScene struct {
	t       *testing.T
	g       *guard.Guard
	other   *guard.Guard
	store   *testStore
	asleep  atomic.Int64
	hooks   recorder // the subject's
	ctx     context.Context
	cancel  context.CancelFunc
	opts    []guard.Option
	body    func(ctx context.Context) error // the subject's function
	keys    []string                        // the subject's: one, or several of which the last is k
	fences  usedFences
	all     sync.WaitGroup
	closing chan error
	local   *waitingCall
	remote  *waitingCall
}

// A waitingCall is a call that waits behind the subject.
type waitingCall struct {
	ran atomic.Bool
	at  time.Time
	err error
}

// usedFences are the fences under which calls have run, in their order.
type usedFences struct {
	mu  sync.Mutex
	all []uint64
}

func (u *usedFences) add(fence uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.all = append(u.all, fence)
}

func newExitScene(t *testing.T, keys []string) *exitScene {
	s := &exitScene{t: t, store: newTestStore(), keys: keys, closing: make(chan error, 1)}
	var err error
	s.g, err = guard.New(s.store, guard.WithTTL(ttl))
	require.NoError(t, err)
	guard.SetSuspended(s.g, func() time.Duration { return time.Duration(s.asleep.Load()) })
	s.other, err = guard.New(s.store.memory, guard.WithTTL(ttl))
	require.NoError(t, err)
	s.ctx, s.cancel = context.WithCancel(t.Context())
	s.body = nothing
	return s
}

// subject starts the call under test. It returns when the call blocks or has ended.
func (s *exitScene) subject(opts ...guard.Option) {
	s.all.Go(func() {
		defer func() { _ = recover() }()
		hook := guard.WithHook(s.hooks.hook())
		opts := append(append([]guard.Option{hook}, s.opts...), opts...)
		body := func(ctx context.Context) error {
			s.fences.add(guard.Fence(ctx))
			return s.body(ctx)
		}
		if len(s.keys) > 1 {
			_ = s.g.DoAll(s.ctx, s.keys, body, opts...)
			return
		}
		_ = s.g.Do(s.ctx, s.keys[0], body, opts...)
	})
	synctest.Wait()
}

// waitBehind starts the two calls that wait behind the subject.
func (s *exitScene) waitBehind() {
	s.local, s.remote = &waitingCall{}, &waitingCall{}
	for g, w := range map[*guard.Guard]*waitingCall{s.g: s.local, s.other: s.remote} {
		s.all.Go(func() {
			w.err = g.Do(s.t.Context(), "k", func(ctx context.Context) error {
				s.fences.add(guard.Fence(ctx))
				w.at = time.Now()
				w.ran.Store(true)
				return nil
			}, guard.WithWait(guard.Forever))
		})
	}
	synctest.Wait()
}

// closeInBackground closes the Guard in the background, with a time limit.
func (s *exitScene) closeInBackground(limit time.Duration) {
	s.all.Go(func() {
		ctx, cancel := context.WithTimeout(s.t.Context(), limit)
		defer cancel()
		s.closing <- s.g.Close(ctx)
	})
	synctest.Wait()
}

// onAcquire replaces the answer to the subject's first request. The store handles the request, but
// the answer comes from f.
func (s *exitScene) onAcquire(f func(ctx context.Context, grant driver.Answer) (driver.Answer, error)) {
	s.store.OnAcquire = func(ctx context.Context, n int, c driver.Claim) (driver.Answer, error) {
		grant, err := s.store.memory.TryAcquire(context.WithoutCancel(ctx), c)
		if n == 1 {
			return f(ctx, grant)
		}
		return grant, err
	}
}

// onRelease replaces the first release. The answer comes from f, and the store does not receive
// the release.
func (s *exitScene) onRelease(f func(ctx context.Context, held bool) (bool, error)) {
	var calls atomic.Int32
	s.store.OnRelease = func(ctx context.Context, _ int, c driver.Claim, after driver.After) (bool, error) {
		if c.Key == "k" && calls.Add(1) == 1 {
			return f(ctx, true)
		}
		return s.store.memory.Release(context.WithoutCancel(ctx), c, after)
	}
}

// claim returns the subject's claim on k.
func (s *exitScene) claim() driver.Claim {
	calls := s.store.granted()
	return calls[slices.IndexFunc(calls, func(c guardtest.Call) bool { return c.Claim.Key == "k" })].Claim
}

// holdElsewhere makes another process hold the key until the returned function is called.
func (s *exitScene) holdElsewhere() (release func()) {
	c := s.store.acquireElsewhere(s.t, time.Hour)
	return func() { s.store.release(s.t, c, driver.After{}) }
}

// aborts are the ways in which a backend or a hook can end without returning.
var aborts = []struct {
	name  string
	abort func()
}{{"panic", func() { panic("boom") }}, {"Goexit", runtime.Goexit}}

// hookOf returns a Hook whose function of that name is f.
func hookOf(name string, f func()) guard.Hook {
	switch name {
	case "AcquireStart":
		return guard.Hook{AcquireStart: func(ctx context.Context, _ guard.Event) context.Context { f(); return ctx }}
	case "Call":
		return guard.Hook{Call: func(context.Context, guard.CallEvent) { f() }}
	case "Wait":
		return guard.Hook{Wait: func(context.Context, guard.WaitEvent) { f() }}
	case "AcquireEnd":
		return guard.Hook{AcquireEnd: func(context.Context, guard.AcquireEvent) { f() }}
	case "RunStart":
		return guard.Hook{RunStart: func(ctx context.Context, _ guard.RunEvent) context.Context { f(); return ctx }}
	case "RunEnd":
		return guard.Hook{RunEnd: func(context.Context, guard.RunEndEvent) { f() }}
	case "Loss":
		return guard.Hook{Loss: func(context.Context, guard.LossEvent) { f() }}
	case "Renew":
		return guard.Hook{Renew: func(context.Context, guard.RenewEvent) { f() }}
	}
	return guard.Hook{Release: func(context.Context, guard.ReleaseEvent) { f() }}
}

// count returns how many events of that name the hooks have received.
func (r *recorder) count(name string) (n int) {
	for _, seen := range r.seen() {
		if seen == name {
			n++
		}
	}
	return n
}

// leases returns how many leases the hooks have seen acquired.
func (r *recorder) leases() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.names {
		if e, ok := r.events[i].(guard.AcquireEvent); ok && e.Err == nil {
			n++
		}
	}
	return n
}

// check makes the five checks.
func (s *exitScene) check(e exit) {
	played := time.Now()
	time.Sleep(ttl + 2*time.Second)
	synctest.Wait()

	// The next waiter gets the key.
	require.True(s.t, s.remote.ran.Load(), "the waiter of another process")
	require.NoError(s.t, s.remote.err)
	require.LessOrEqual(s.t, s.remote.at.Sub(played), ttl+time.Second, "the waiter of another process")
	if e.closes {
		require.ErrorIs(s.t, s.local.err, guard.ErrClosed)
		require.False(s.t, guard.Ran(s.local.err))
	} else {
		require.NoError(s.t, s.local.err)
		require.True(s.t, s.local.ran.Load(), "the waiter of the same Guard")
		require.LessOrEqual(s.t, s.local.at.Sub(played), ttl+time.Second, "the waiter of the same Guard")
	}

	// All keys are free again within the TTL. Fences have grown.
	for _, key := range s.keys {
		require.True(s.t, s.store.free(key), key)
	}
	require.IsIncreasing(s.t, append([]uint64{0}, s.fences.all...))

	// Close returns, with the right error.
	var err error
	if e.closes {
		err = <-s.closing
	} else {
		start := time.Now()
		err = s.g.Close(s.t.Context())
		require.LessOrEqual(s.t, time.Since(start), time.Second)
	}
	switch says := e.closeError; {
	case says == "":
		require.NoError(s.t, err)
	case len(s.keys) == 2:
		require.ErrorContains(s.t, err, strings.TrimPrefix(says, "1 lease was ")) // one or both
	default:
		require.ErrorContains(s.t, err, says)
	}
	require.NoError(s.t, s.other.Close(s.t.Context()))

	// No goroutine is left. The bubble fails if one is, or if a call never returns.
	s.all.Wait()
	require.Zero(s.t, guard.Queues(s.g))

	// No event was reported twice, and none is missing.
	seen := s.hooks.seen()
	if len(s.keys) == 1 {
		require.Equal(s.t, 1, s.hooks.count("acquire start"), seen)
	}
	require.Equal(s.t, s.hooks.count("acquire start"), s.hooks.count("acquire end"), seen)
	require.LessOrEqual(s.t, s.hooks.count("run start"), 1, seen)
	require.Equal(s.t, s.hooks.count("run start"), s.hooks.count("run end"), seen)
	require.LessOrEqual(s.t, s.hooks.count("loss"), len(s.keys), seen)
	require.LessOrEqual(s.t, s.hooks.count("wait"), len(s.keys), seen)
	require.Equal(s.t, s.hooks.leases(), s.hooks.count("release"), seen)
}
