package guard_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

// A fenceScene is one call for the keys a and b, of which b has the larger fences. The call may be
// inside of a run that holds one of them.
type fenceScene struct {
	t           *testing.T
	store       *countersStore
	here, there *guard.Guard
	opts        []guard.Option
	body        func(ctx context.Context) error
	ctx         context.Context
	cancel      context.CancelFunc
	all         sync.WaitGroup

	mu   sync.Mutex
	seen map[string]map[uint64]string // by key and fence, the ID of the claim that has used it
	last map[string]uint64            // by key, the largest fence that a holder alone has seen
}

var bothKeys = []string{"a", "b"}

// see notes the fences under which the claims are used, and checks them.
func (s *fenceScene) see(who string, alone bool, claims []driver.Claim, common uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range claims {
		if c.Fence > s.store.largest(c.Key) {
			s.t.Errorf("%s sees fence %d of %s, and the store knows %d", who, c.Fence, c.Key, s.store.largest(c.Key))
		}
		if common > c.Fence {
			s.t.Errorf("%s has fence %d, and %d of %s", who, common, c.Fence, c.Key)
		}
		if id, ok := s.seen[c.Key][c.Fence]; ok && id != c.ID {
			s.t.Errorf("%s has fence %d of %s, which another holder has had", who, c.Fence, c.Key)
		}
		s.seen[c.Key][c.Fence] = c.ID
		if alone {
			s.last[c.Key] = max(s.last[c.Key], c.Fence)
		}
	}
}

// run is the function of the call, under its leases.
func (s *fenceScene) run(ctx context.Context, claims []driver.Claim, fence uint64, alone bool) error {
	require.Len(s.t, claims, 2)
	s.see("the call", alone, claims, fence)
	if alone {
		require.Equal(s.t, claims[0].Fence, claims[1].Fence, "one fence")
		require.Equal(s.t, claims[0].Fence, fence, "one fence")
	} else {
		require.Zero(s.t, fence, "each key has its own")
	}
	return s.body(ctx)
}

// fenceCalls are the calls for several keys.
var fenceCalls = map[string]func(s *fenceScene, ctx context.Context, alone bool) error{
	"DoAll": func(s *fenceScene, ctx context.Context, alone bool) error {
		return s.here.DoAll(ctx, bothKeys, func(ctx context.Context) error {
			lease, _ := guard.FromContext(ctx)
			require.Equal(s.t, lease.Fence(), guard.Fence(ctx))
			return s.run(ctx, lease.Claims(), guard.Fence(ctx), alone)
		}, s.opts...)
	},
	"AcquireAll": func(s *fenceScene, ctx context.Context, alone bool) error {
		l, err := s.here.AcquireAll(ctx, bothKeys, s.opts...)
		if err != nil {
			return err
		}
		defer func() { _ = l.Release(ctx) }()
		require.Equal(s.t, l.Fence(), guard.Fence(l.Context()))
		return s.run(l.Context(), l.Claims(), l.Fence(), alone)
	},
}

// A fenceKind is how the call holds its keys, and what holds some of them around it.
type fenceKind struct {
	opts   []guard.Option
	outer  string         // the key that the context holds, or ""
	under  []guard.Option // of the outer call
	there  bool           // another Guard holds it
	shared bool           // others may hold a key meanwhile
}

var fenceKinds = map[string]fenceKind{
	"alone":                             {},
	"alone, waiting":                    {opts: []guard.Option{guard.WithWait(time.Minute)}},
	"alone, fair":                       {opts: []guard.Option{guard.WithWait(time.Minute), guard.WithFair()}},
	"alone, not renewed":                {opts: []guard.Option{guard.WithoutRenewal()}},
	"shared":                            {opts: []guard.Option{guard.WithShared()}, shared: true},
	"shared, fair":                      {opts: []guard.Option{guard.WithShared(), guard.WithFair(), guard.WithWait(time.Minute)}, shared: true},
	"a limit":                           {opts: []guard.Option{guard.WithLimit(2)}, shared: true},
	"a limit without seats":             {opts: []guard.Option{guard.WithLimit(guard.MaxSeats + 1)}, shared: true},
	"the first key is joined":           {outer: "a"},
	"the last key is joined":            {outer: "b"},
	"a key of another Guard is joined":  {outer: "a", there: true},
	"a key that is not renewed":         {outer: "a", under: []guard.Option{guard.WithoutRenewal()}},
	"a shared key is joined":            {outer: "a", under: []guard.Option{guard.WithShared()}, opts: []guard.Option{guard.WithShared()}, shared: true},
	"a key with a limit is joined":      {outer: "a", under: []guard.Option{guard.WithLimit(2)}, opts: []guard.Option{guard.WithLimit(2)}, shared: true},
	"a key alone is joined with limits": {outer: "a", opts: []guard.Option{guard.WithLimit(2)}, shared: true},
}

// A fenceExit is how the call ends. want, if set, is its error in a call alone that does not wait.
type fenceExit struct {
	play func(s *fenceScene)
	want error
}

func fenceExits() map[string]fenceExit {
	errFailed := errors.New("failed")
	rows := map[string]fenceExit{
		"return": {play: func(*fenceScene) {}},
		"error":  {func(s *fenceScene) { s.body = func(context.Context) error { return errFailed } }, errFailed},
		"cancel while it runs": {func(s *fenceScene) {
			s.body = func(ctx context.Context) error { s.cancel(); <-ctx.Done(); return ctx.Err() }
		}, context.Canceled},
		"Close while it runs": {play: func(s *fenceScene) {
			s.body = func(ctx context.Context) error { s.closeSoon(time.Second); <-ctx.Done(); return nil }
		}},
		"loss while it runs": {play: func(s *fenceScene) {
			s.body = func(ctx context.Context) error { s.lose(ctx); <-ctx.Done(); return nil }
		}},
		"cancel while it raises": {func(s *fenceScene) {
			s.raising(func(ctx context.Context, renew func() bool) (bool, error) { s.cancel(); return renew(), nil })
		}, context.Canceled},
		"cancel while it raises, and the request is lost": {func(s *fenceScene) {
			s.raising(func(ctx context.Context, _ func() bool) (bool, error) { s.cancel(); return false, frozen(ctx) })
		}, context.Canceled},
		"deadline while it raises": {func(s *fenceScene) {
			s.ctx, s.cancel = context.WithTimeout(s.ctx, 100*time.Millisecond)
			s.raising(func(ctx context.Context, renew func() bool) (bool, error) { renew(); return false, frozen(ctx) })
		}, context.DeadlineExceeded},
		"Close while it raises": {func(s *fenceScene) {
			s.raising(func(ctx context.Context, renew func() bool) (bool, error) {
				s.closeSoon(time.Second)
				time.Sleep(100 * time.Millisecond)
				return renew(), nil
			})
		}, guard.ErrClosed},
		"loss while it raises": {func(s *fenceScene) {
			s.raising(func(context.Context, func() bool) (bool, error) { return false, nil })
		}, guard.ErrLost},
		"the answer to the raise is lost": {func(s *fenceScene) {
			s.raising(func(_ context.Context, renew func() bool) (bool, error) {
				renew()
				return false, guardtest.Fail(driver.KindConnection)
			})
		}, guard.ErrStore},
		"the raise is lost": {func(s *fenceScene) {
			s.raising(func(context.Context, func() bool) (bool, error) { return false, guardtest.Fail(driver.KindConnection) })
		}, guard.ErrStore},
	}
	for _, a := range aborts {
		rows[a.name] = fenceExit{play: func(s *fenceScene) { s.body = func(context.Context) error { a.abort(); return nil } }}
		rows[a.name+" in the Locker while it raises"] = fenceExit{func(s *fenceScene) {
			s.raising(func(context.Context, func() bool) (bool, error) { a.abort(); return false, nil })
		}, guard.ErrStore}
	}
	for _, hook := range []string{"AcquireStart", "Call", "AcquireEnd", "RunStart", "RunEnd", "Renew", "Release"} {
		rows["cancel in the hook "+hook] = fenceExit{play: func(s *fenceScene) {
			s.opts = append(s.opts, guard.WithHook(hookOf(hook, func() { s.cancel() })))
		}}
		for _, a := range aborts {
			rows[a.name+" in the hook "+hook] = fenceExit{play: func(s *fenceScene) {
				s.opts = append(s.opts, guard.WithHook(hookOf(hook, a.abort)))
			}}
		}
	}
	return rows
}

// raising replaces the answer to the first renewal that raises a fence.
func (s *fenceScene) raising(f func(ctx context.Context, renew func() bool) (bool, error)) {
	first := true
	s.store.onRenew = func(ctx context.Context, c driver.Claim, renew func() bool) (bool, error) {
		s.mu.Lock()
		raises := first && c.Fence > s.store.largest(c.Key)
		first = first && !raises
		s.mu.Unlock()
		if raises {
			return f(ctx, renew)
		}
		return renew(), nil
	}
}

// closeSoon closes the Guard in the background, and revokes leases after a time.
func (s *fenceScene) closeSoon(limit time.Duration) {
	s.all.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		_ = s.here.Close(ctx)
	})
}

// lose has the store forget the claims of a run.
func (s *fenceScene) lose(ctx context.Context) {
	lease, _ := guard.FromContext(ctx)
	for _, c := range lease.Claims() {
		_, err := s.store.Release(context.Background(), c, driver.After{})
		require.NoError(s.t, err)
	}
}

// call makes the call, in a goroutine that it may end.
func (s *fenceScene) call(call func(s *fenceScene, ctx context.Context, alone bool) error, ctx context.Context, alone bool) (err error) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() { _ = recover() }()
		err = call(s, ctx, alone)
	}()
	<-ended
	return err
}

// around makes the call inside of a run that holds one of the keys.
func (s *fenceScene) around(k fenceKind, f func(ctx context.Context)) {
	if k.outer == "" {
		f(s.ctx)
		return
	}
	g := s.here
	if k.there {
		g = s.there
	}
	_ = g.Do(context.Background(), k.outer, func(ctx context.Context) error {
		lease, _ := guard.FromContext(ctx)
		alone := len(k.under) == 0 || !k.shared
		s.see("the outer run", alone, lease.Claims(), guard.Fence(ctx))
		inner, cancel := context.WithCancel(ctx)
		stop := context.AfterFunc(s.ctx, cancel)
		defer stop()
		if deadline, ok := s.ctx.Deadline(); ok {
			inner, cancel = context.WithDeadline(inner, deadline)
		}
		defer cancel()
		f(inner)
		s.see("the outer run", alone, lease.Claims(), guard.Fence(ctx))
		// a renewal is due, and the store may have got a fence that was not answered
		time.Sleep(ttl / 2)
		if known := s.store.fence(s.t, k.outer, lease.ID()); known > 0 {
			s.see("the outer run", alone, lease.Claims(), guard.Fence(ctx))
			require.Equal(s.t, known, guard.Fence(ctx), "the run and the store agree")
		}
		return nil
	}, k.under...)
}

// However a call for several keys ends: the store knows each fence that a run sees, the fences of
// holders alone grow, no two holders of a key have one fence, and all keys are free then.
func TestDoAll_fencesAtEachExit(t *testing.T) {
	for how, e := range fenceExits() {
		for kind, k := range fenceKinds {
			for name, call := range fenceCalls {
				t.Run(fmt.Sprint(how, "/", kind, "/", name), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { playFences(t, e, k, kind == "alone", call) })
				})
			}
		}
	}
}

func playFences(t *testing.T, e fenceExit, k fenceKind, plain bool, call func(s *fenceScene, ctx context.Context, alone bool) error) {
	s := &fenceScene{
		t: t, store: newCountersStore(), body: nothing, opts: k.opts[:len(k.opts):len(k.opts)],
		seen: map[string]map[uint64]string{"a": {}, "b": {}}, last: map[string]uint64{},
	}
	s.ctx, s.cancel = context.WithCancel(t.Context())
	for _, g := range []**guard.Guard{&s.here, &s.there} {
		var err error
		*g, err = guard.New(s.store, guard.WithTTL(ttl))
		require.NoError(t, err)
	}
	ahead := uint64(time.Now().Unix()+3600) << 20
	s.store.count(t, "a", ahead)
	s.store.count(t, "b", ahead+1000)

	var partner *guard.Lease // another holder of a, which has the fence that the call has of b
	if k.shared {
		s.opts = append(s.opts, guard.WithHook(guard.Hook{AcquireEnd: func(_ context.Context, ev guard.AcquireEvent) {
			if ev.Key == "a" && ev.Err == nil && partner == nil {
				time.Sleep(time.Millisecond) // b is granted
				s.store.count(t, "a", s.store.lastGranted("b")-1)
				partner, _ = s.there.Acquire(context.Background(), "a", k.opts...)
			}
		}}))
	}
	e.play(s)
	s.around(k, func(ctx context.Context) {
		err := s.call(call, ctx, !k.shared)
		if plain && e.want != nil {
			require.ErrorIs(t, err, e.want)
		}
	})
	s.cancel()
	if partner != nil {
		s.see("the other holder", false, partner.Claims(), partner.Fence())
		require.NoError(t, partner.Release(context.Background()))
	}
	time.Sleep(2 * ttl)
	for _, key := range bothKeys {
		next, err := s.there.Acquire(context.Background(), key)
		require.NoError(t, err, "the key is free")
		s.see("the next holder", true, next.Claims(), next.Fence())
		for fence := range s.seen[key] {
			require.LessOrEqual(t, fence, next.Fence(), "fences grow")
		}
		require.NoError(t, next.Release(context.Background()))
	}
	for _, g := range []*guard.Guard{s.here, s.there} {
		_ = g.Close(context.Background())
	}
	s.all.Wait()
}
