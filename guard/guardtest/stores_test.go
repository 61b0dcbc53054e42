package guardtest_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

// A server is a store in memory that can be flushed and frozen. What is asked while it is frozen
// arrives when it has thawed, whether or not somebody still waits for the answer.
type server struct {
	deaf bool // calls do not end with their contexts

	mu     sync.Mutex
	data   *memory.Locker
	thawed chan struct{} // nil if the server is not frozen
	late   func(guard.Claim) guard.Claim
}

// A wrap makes a Locker of another.
type wrap func(guard.Locker) guard.Locker

// wrapped returns a store with all abilities but owners, whose Locker is wrapped.
func wrapped(w wrap) guardtest.Store { return serverStore(&server{}, w) }

func serverStore(s *server, w wrap) guardtest.Store {
	return guardtest.Store{
		New: func(testing.TB) guard.Locker {
			s.data, s.thawed = memory.New(), nil
			return w(s)
		},
		// A wrapper's state is part of the store, so this does not wrap anew.
		Again: func(_ testing.TB, l guard.Locker) guard.Locker { return l },
		Flush: func(testing.TB) {
			time.Sleep(time.Millisecond) // as the bubble's clock stands still, and a server's does not
			s.mu.Lock()
			defer s.mu.Unlock()
			s.data = memory.New()
		},
		Freeze: func(testing.TB) func() {
			thawed := make(chan struct{})
			s.mu.Lock()
			defer s.mu.Unlock()
			s.thawed = thawed
			return func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.thawed = nil
				close(thawed)
			}
		},
		Bubble: true,
	}
}

// ask asks the memory, now or when the server has thawed.
func ask[T any](ctx context.Context, s *server, op guard.Op, c guard.Claim, f func(context.Context, guard.Claim, *memory.Locker) (T, error)) (T, error) {
	s.mu.Lock()
	data, thawed := s.data, s.thawed
	s.mu.Unlock()
	if thawed == nil {
		return f(ctx, c, data)
	}
	type answer struct {
		t   T
		err error
	}
	answered := make(chan answer, 1)
	go func() {
		<-thawed
		if s.late != nil {
			c = s.late(c)
		}
		t, err := f(context.WithoutCancel(ctx), c, data)
		answered <- answer{t, err}
	}()
	over := ctx.Done()
	if s.deaf {
		over = nil
	}
	select {
	case a := <-answered:
		return a.t, a.err
	case <-over:
		var none T
		return none, guard.NewStoreError("server", op, c.Key, ctx.Err())
	}
}

func (s *server) TryAcquire(ctx context.Context, c guard.Claim) (guard.Grant, error) {
	return ask(ctx, s, guard.OpAcquire, c, func(ctx context.Context, c guard.Claim, l *memory.Locker) (guard.Grant, error) {
		return l.TryAcquire(ctx, c)
	})
}

func (s *server) Renew(ctx context.Context, c guard.Claim) (bool, error) {
	return ask(ctx, s, guard.OpRenew, c, func(ctx context.Context, c guard.Claim, l *memory.Locker) (bool, error) {
		return l.Renew(ctx, c)
	})
}

func (s *server) Release(ctx context.Context, c guard.Claim, after guard.After) (bool, error) {
	return ask(ctx, s, guard.OpRelease, c, func(ctx context.Context, c guard.Claim, l *memory.Locker) (bool, error) {
		return l.Release(ctx, c, after)
	})
}

func (s *server) RenewBatch(ctx context.Context, claims []guard.Claim, report func(int, bool, error)) {
	for i, c := range claims {
		held, err := s.Renew(ctx, c)
		report(i, held, err)
	}
}

// same is a wrap that changes nothing.
func same(l guard.Locker) guard.Locker { return l }

func TestRun_passesAGoodStore(t *testing.T) { guardtest.Run(t, wrapped(same)) }

func TestRun_passesAGoodStoreThatTells(t *testing.T) { guardtest.Run(t, telling(true, true, true)) }

func TestRun_passesAGoodStoreWithOwners(t *testing.T) { guardtest.Run(t, ownerStore(same)) }

// plain hides the optional abilities of a Locker.
type plain struct{ guard.Locker }

func TestRun_passesAStoreOfNoAbilities(t *testing.T) {
	guardtest.Run(t, guardtest.Store{
		New:    func(testing.TB) guard.Locker { return plain{memory.New()} },
		Bubble: true,
		MinTTL: 10 * time.Millisecond,
		Keys:   []string{"a key more", "a key more", "not{allowed}"},
	})
}

func TestRunExclusion_passesAGoodStoreInRealTime(t *testing.T) {
	guardtest.RunExclusion(t, guardtest.Store{New: func(testing.TB) guard.Locker { return memory.New() }})
}

func BenchmarkMemory(b *testing.B) {
	guardtest.Benchmark(b, guardtest.Store{New: func(testing.TB) guard.Locker { return memory.New() }})
}
