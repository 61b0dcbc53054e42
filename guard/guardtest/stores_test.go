package guardtest_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

// A server is a store in memory that can be flushed and frozen. Calls to a frozen server arrive
// after the thaw, even if the caller has given up.
type server struct {
	ignoresContext bool // calls do not end with their contexts
	// It restarts after a flush before its clock has passed the fences that it reserved.
	restartsFast bool

	mu     sync.Mutex
	data   *memory.Locker
	thawed chan struct{}                   // nil if the server is not frozen
	late   func(driver.Claim) driver.Claim // changes the claims of calls that arrive late
}

// A wrap returns a Locker around another one.
type wrap func(guard.Locker) guard.Locker

// wrapped returns a backend with a wrapped Locker. Its store can be flushed and frozen.
func wrapped(w wrap) guardtest.Backend { return serverBackend(&server{}, w) }

func serverBackend(s *server, w wrap) guardtest.Backend {
	return guardtest.Backend{
		New: func(testing.TB) guard.Locker {
			s.data, s.thawed = memory.New(), nil
			return w(s)
		},
		// The state of a wrapper is part of the store, so the Locker is not wrapped again.
		Again: func(_ testing.TB, l guard.Locker) guard.Locker { return l },
		Flush: func(testing.TB) {
			downtime := 100 * time.Millisecond // like a restart of the server
			if s.restartsFast {
				downtime = time.Millisecond
			}
			time.Sleep(downtime)
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

// ask calls f on the store, at once or after the thaw.
func ask[T any](ctx context.Context, s *server, op driver.Op, c driver.Claim, f func(context.Context, driver.Claim, *memory.Locker) (T, error)) (T, error) {
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
	done := ctx.Done()
	if s.ignoresContext {
		done = nil
	}
	select {
	case a := <-answered:
		return a.t, a.err
	case <-done:
		var none T
		return none, driver.NewStoreError("server", op, c.Key, ctx.Err())
	}
}

func (s *server) TryAcquire(ctx context.Context, c driver.Claim) (driver.Answer, error) {
	return ask(ctx, s, driver.OpAcquire, c, func(ctx context.Context, c driver.Claim, l *memory.Locker) (driver.Answer, error) {
		return l.TryAcquire(ctx, c)
	})
}

func (s *server) Renew(ctx context.Context, c driver.Claim) (bool, error) {
	return ask(ctx, s, driver.OpRenew, c, func(ctx context.Context, c driver.Claim, l *memory.Locker) (bool, error) {
		return l.Renew(ctx, c)
	})
}

func (s *server) Release(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
	return ask(ctx, s, driver.OpRelease, c, func(ctx context.Context, c driver.Claim, l *memory.Locker) (bool, error) {
		return l.Release(ctx, c, after)
	})
}

// same is a wrap that changes nothing.
func same(l guard.Locker) guard.Locker { return l }

func TestRun_passesAGoodBackend(t *testing.T) { guardtest.Run(t, wrapped(same)) }

func TestRun_passesAGoodBackendThatNotifies(t *testing.T) {
	guardtest.Run(t, notifying(true, true, true))
}

func TestRun_passesAGoodBackendWithOwners(t *testing.T) { guardtest.Run(t, ownerBackend(same)) }

// plain hides the optional abilities of a Locker.
type plain struct{ guard.Locker }

func TestRun_passesABackendWithoutAbilities(t *testing.T) {
	guardtest.Run(t, guardtest.Backend{
		New:    func(testing.TB) guard.Locker { return plain{memory.New()} },
		Bubble: true,
		MinTTL: 10 * time.Millisecond,
		Keys:   []string{"another key", "another key", "not{allowed}"},
	})
}

func TestRunExclusion_passesAGoodBackendInRealTime(t *testing.T) {
	guardtest.RunExclusion(t, guardtest.Backend{New: func(testing.TB) guard.Locker { return memory.New() }})
}

func BenchmarkMemory(b *testing.B) {
	guardtest.Benchmark(b, guardtest.Backend{New: func(testing.TB) guard.Locker { return memory.New() }})
}
