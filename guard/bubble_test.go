package guard_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

// testStore is a store in memory whose answers a test can replace, delay or lose.
type testStore struct {
	guardtest.Scripted
	memory *memory.Locker
}

func newTestStore() *testStore {
	inner := memory.New()
	return &testStore{memory: inner, Scripted: guardtest.Scripted{Inner: inner}}
}

// count returns how many calls of that kind the store has received.
func (s *testStore) count(op driver.Op) (n int) {
	for _, call := range s.Calls() {
		if call.Op == op {
			n++
		}
	}
	return n
}

// free reports whether the key is free in the store.
func (s *testStore) free(key string) bool {
	probe := driver.Claim{Key: key, ID: "probe", Owner: "probe", TTL: time.Second}
	grant, err := s.memory.TryAcquire(context.Background(), probe)
	if err != nil || grant.State != driver.Granted {
		return false
	}
	_, err = s.memory.Release(context.Background(), probe, driver.After{})
	return err == nil
}

// forget makes the store forget the lease on the key, as if it had been deleted.
func (s *testStore) forget(t *testing.T, key string) {
	t.Helper()
	info, err := s.memory.Show(t.Context(), key)
	require.NoError(t, err)
	require.Len(t, info.Holders, 1)
	_, err = s.memory.Release(t.Context(), driver.Claim{Key: key, ID: info.Holders[0].ID}, driver.After{})
	require.NoError(t, err)
}

// frozen simulates a store that does not answer: it blocks until the context ends.
func frozen(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// noAnswer is a store that does not answer an acquire.
func noAnswer(ctx context.Context, _ int, _ driver.Claim) (driver.Answer, error) {
	return driver.Answer{}, frozen(ctx)
}

// failing is a store that answers each acquire with an error.
func failing(err error) func(context.Context, int, driver.Claim) (driver.Answer, error) {
	return func(context.Context, int, driver.Claim) (driver.Answer, error) { return driver.Answer{}, err }
}

// acquireAfter is a store that handles an acquire after a delay.
func (s *testStore) acquireAfter(d time.Duration) func(context.Context, int, driver.Claim) (driver.Answer, error) {
	return func(ctx context.Context, _ int, c driver.Claim) (driver.Answer, error) {
		time.Sleep(d)
		return s.memory.TryAcquire(ctx, c)
	}
}

// noRenewal is a store that does not answer a renewal, and notHeld one that knows nothing of it.
func noRenewal(ctx context.Context, _ int, _ driver.Claim) (bool, error) { return false, frozen(ctx) }
func notHeld(context.Context, int, driver.Claim) (bool, error)           { return false, nil }

// freezeReleases makes the store stop answering releases until thaw is called.
func (s *testStore) freezeReleases() (thaw func()) {
	var thawed atomic.Bool
	s.OnRelease = func(ctx context.Context, _ int, c driver.Claim, after driver.After) (bool, error) {
		if thawed.Load() {
			return s.memory.Release(ctx, c, after)
		}
		return false, frozen(ctx)
	}
	return func() { thawed.Store(true) }
}

// failReleasesFor makes every release fail for d from now.
func (s *testStore) failReleasesFor(d time.Duration) {
	start := time.Now()
	s.OnRelease = func(context.Context, int, driver.Claim, driver.After) (bool, error) {
		if time.Since(start) < d {
			return false, guardtest.Fail(driver.KindConnection)
		}
		return false, guardtest.ErrUnscripted
	}
}

const ttl = 10 * time.Second

// margin is what the engine subtracts from a TTL of ttl.
const margin = ttl/100 + 20*time.Millisecond

// inBubble runs f in virtual time with a Guard over a testStore. The bubble fails if f leaves a
// goroutine of the Guard behind.
func inBubble(t *testing.T, f func(t *testing.T, g *guard.Guard, store *testStore), opts ...guard.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := newTestStore()
		g := openGuard(t, store, append([]guard.Option{guard.WithTTL(ttl)}, opts...)...)
		t.Cleanup(func() {
			// A failed test may leave a lease, which the Guard would renew forever.
			ending, cancel := context.WithTimeout(context.Background(), time.Hour)
			defer cancel()
			closed := guard.IsClosed(g) // the test may have closed it
			err := g.Close(ending)
			if !closed {
				require.NoError(t, err)
			}
		})
		f(t, g, store)
	})
}

// inBubbleOf is a subtest in a bubble.
func inBubbleOf(t *testing.T, name string, f func(t *testing.T, g *guard.Guard, store *testStore), opts ...guard.Option) {
	t.Helper()
	t.Run(name, func(t *testing.T) { inBubble(t, f, opts...) })
}

// inTimeOf is a subtest in virtual time.
func inTimeOf(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// as returns the error of its type that err is, or wraps.
func as[E error](t testing.TB, err error, msg ...any) (e E) {
	t.Helper()
	require.ErrorAs(t, err, &e, msg...)
	return e
}

// newGuard returns a Guard, and closes it in the end.
func newGuard(t *testing.T, store guard.Locker, opts ...guard.Option) *guard.Guard {
	t.Helper()
	g := openGuard(t, store, opts...)
	t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
	return g
}

// openGuard returns a Guard that the test closes itself.
func openGuard(t *testing.T, store guard.Locker, opts ...guard.Option) *guard.Guard {
	t.Helper()
	g, err := guard.New(store, opts...)
	require.NoError(t, err)
	return g
}

// within returns a context of the test that ends after the given time.
func within(t *testing.T, limit time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// hold acquires the key and returns the lease.
func hold(t *testing.T, g *guard.Guard, key string, opts ...guard.Option) *guard.Lease {
	t.Helper()
	lease, err := g.Acquire(t.Context(), key, opts...)
	require.NoError(t, err)
	return lease
}

// sleeping is work that takes a time and ignores its context.
func sleeping(d time.Duration) func(context.Context) error {
	return func(context.Context) error { time.Sleep(d); return nil }
}

// nothing is work that succeeds at once.
func nothing(context.Context) error { return nil }

// recorder collects the events of a Hook by name, in order.
type recorder struct {
	mu     sync.Mutex
	names  []string
	events []any
}

func (r *recorder) add(name string, e any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.names = append(r.names, name)
	r.events = append(r.events, e)
}

func (r *recorder) seen() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.names...)
}

// last returns the newest event of the type.
func last[E any](t *testing.T, r *recorder) (e E) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := len(r.events) - 1; i >= 0; i-- {
		if e, ok := r.events[i].(E); ok {
			return e
		}
	}
	require.Failf(t, "no such event", "%T was not among %v", e, r.names)
	return e
}

// record returns a function of a Hook that adds each event under the name.
func record[E any](r *recorder, name string) func(context.Context, E) {
	return func(_ context.Context, e E) { r.add(name, e) }
}

func recordStart[E any](r *recorder, name string) func(context.Context, E) context.Context {
	return func(ctx context.Context, e E) context.Context {
		r.add(name, e)
		return context.WithValue(ctx, hookKey(name), true)
	}
}

func (r *recorder) hook() guard.Hook {
	return guard.Hook{
		AcquireStart: recordStart[guard.Event](r, "acquire start"), RunStart: recordStart[guard.RunEvent](r, "run start"),
		Wait: record[guard.WaitEvent](r, "wait"), AcquireEnd: record[guard.AcquireEvent](r, "acquire end"),
		Skip: record[guard.SkipEvent](r, "skip"), RunEnd: record[guard.RunEndEvent](r, "run end"),
		Renew: record[guard.RenewEvent](r, "renew"), Loss: record[guard.LossEvent](r, "loss"),
		Release: record[guard.ReleaseEvent](r, "release"),
	}
}

type hookKey string
