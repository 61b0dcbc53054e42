package guardtest_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
)

// A broken is a backend with one defect, and the checks that must fail for it. Other checks may
// fail as well.
type broken struct {
	name     string
	backend  guardtest.Backend
	caughtBy []string
}

func allBroken() []broken {
	return slices.Concat(brokenClaims(), brokenLabels(), brokenRenewals(), brokenReleases(), brokenTimes(),
		brokenMarkers(), brokenFences(), brokenOwners(), brokenQuorums(), brokenKeys(), brokenBatches(), brokenContexts(), brokenFreezes(), brokenLedgers(), brokenNotifications(), brokenQueues(), brokenSharing(), brokenBatchesOfClaims(), brokenInspections())
}

func TestLong_aBrokenBackendFails(t *testing.T) {
	leftout.IfShort(t)
	for _, b := range allBroken() {
		t.Run(b.name, func(t *testing.T) {
			for _, name := range b.caughtBy {
				r := runCheck(t, b.backend, name)
				require.True(t, r.Failed(), "this check did not fail: %s", name)
			}
		})
	}
}

func TestRun_hasNoCheckThatCannotFail(t *testing.T) {
	caught := map[string]bool{}
	for _, b := range allBroken() {
		for _, name := range b.caughtBy {
			caught[name] = true
		}
	}
	for _, name := range guardtest.CheckNames() {
		require.True(t, caught[name], "no broken backend fails this check: %s", name)
	}
}

func TestRunExclusion_namesItsSeed(t *testing.T) {
	t.Setenv("GUARDTEST_SEED", "4711")
	for _, name := range []string{"random workers never hold a key at the same time", "no update made under a lease is lost"} {
		r := runCheck(t, wrapped(seldomExclusive), name)
		require.Contains(t, r.messages, "to use the same random numbers again, set GUARDTEST_SEED=4711")
	}
}

// runCheck runs a check in a bubble, and returns what the check reported.
func runCheck(t *testing.T, s guardtest.Backend, name string) *recorder {
	t.Helper()
	var r *recorder
	synctest.Test(t, func(t *testing.T) {
		r = &recorder{TB: t}
		ended := make(chan struct{})
		go func() { // FailNow ends this goroutine
			defer close(ended)
			defer r.cleanUp()
			guardtest.Check(r, s, name)
		}()
		<-ended
		// Goroutines that a broken backend has left behind end meanwhile.
		time.Sleep(time.Minute)
	})
	return r
}

// A recorder is a testing.TB whose failure does not fail the test that runs it.
type recorder struct {
	testing.TB

	mu       sync.Mutex
	failed   bool
	messages []string
	cleanups []func()
}

func (r *recorder) Helper() {}

func (r *recorder) Logf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.messages = append(r.messages, fmt.Sprintf(format, args...))
}

func (r *recorder) Errorf(format string, args ...any) {
	r.Logf(format, args...)
	r.Fail()
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Logf(format, args...)
	r.FailNow()
}

func (r *recorder) Fail() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
}

func (r *recorder) FailNow() {
	r.Fail()
	runtime.Goexit()
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

func (r *recorder) cleanUp() {
	for _, f := range slices.Backward(r.cleanups) {
		f()
	}
}

// A twist is a Locker with some of its methods replaced, and without its optional abilities.
type twist struct {
	guard.Locker
	acquire func(context.Context, driver.Claim) (driver.Answer, error)
	renew   func(context.Context, driver.Claim) (bool, error)
	release func(context.Context, driver.Claim, driver.After) (bool, error)
}

func (t *twist) TryAcquire(ctx context.Context, c driver.Claim) (driver.Answer, error) {
	if t.acquire != nil {
		return t.acquire(ctx, c)
	}
	return t.Locker.TryAcquire(ctx, c)
}

func (t *twist) Renew(ctx context.Context, c driver.Claim) (bool, error) {
	if t.renew != nil {
		return t.renew(ctx, c)
	}
	return t.Locker.Renew(ctx, c)
}

func (t *twist) Release(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
	if t.release != nil {
		return t.release(ctx, c, after)
	}
	return t.Locker.Release(ctx, c, after)
}

// mapping changes every claim.
func mapping(change func(*driver.Claim)) wrap {
	return func(l guard.Locker) guard.Locker { return mapped(l, change) }
}

func mapped(l guard.Locker, change func(*driver.Claim)) *twist {
	return &twist{
		Locker: l,
		acquire: func(ctx context.Context, c driver.Claim) (driver.Answer, error) {
			change(&c)
			return l.TryAcquire(ctx, c)
		},
		renew: func(ctx context.Context, c driver.Claim) (bool, error) { change(&c); return l.Renew(ctx, c) },
		release: func(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
			change(&c)
			return l.Release(ctx, c, after)
		},
	}
}

// acquires, renews and releases replace one method.
func acquires(f func(ctx context.Context, l guard.Locker, c driver.Claim) (driver.Answer, error)) wrap {
	return func(l guard.Locker) guard.Locker {
		return &twist{Locker: l, acquire: func(ctx context.Context, c driver.Claim) (driver.Answer, error) { return f(ctx, l, c) }}
	}
}

func renews(f func(ctx context.Context, l guard.Locker, c driver.Claim) (bool, error)) wrap {
	return func(l guard.Locker) guard.Locker {
		return &twist{Locker: l, renew: func(ctx context.Context, c driver.Claim) (bool, error) { return f(ctx, l, c) }}
	}
}

func releases(f func(ctx context.Context, l guard.Locker, c driver.Claim, after driver.After) (bool, error)) wrap {
	return func(l guard.Locker) guard.Locker {
		return &twist{Locker: l, release: func(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
			return f(ctx, l, c, after)
		}}
	}
}

// answering changes the answers to claims.
func answering(change func(c driver.Claim, g *driver.Answer)) guardtest.Backend {
	return wrapped(acquires(func(ctx context.Context, l guard.Locker, c driver.Claim) (driver.Answer, error) {
		g, err := l.TryAcquire(ctx, c)
		if err == nil {
			change(c, &g)
		}
		return g, err
	}))
}

// keeping changes what releases leave behind.
func keeping(change func(after *driver.After)) guardtest.Backend {
	return wrapped(releases(func(ctx context.Context, l guard.Locker, c driver.Claim, after driver.After) (bool, error) {
		change(&after)
		return l.Release(ctx, c, after)
	}))
}

// A memo is a map that is safe for concurrent use. The zero value is ready for use.
type memo[T any] struct {
	mu sync.Mutex
	m  map[string]T
}

func (m *memo[T]) get(key string) T {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.m[key]
}

func (m *memo[T]) set(key string, v T) (before T) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.m == nil {
		m.m = map[string]T{}
	}
	before = m.m[key]
	m.m[key] = v
	return before
}
