package guard_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// A slowStore runs each call in the middle of a delay, and answers at its end. A call whose
// context ends returns then, and is run all the same.
type slowStore struct {
	*memory.Locker
	delay map[driver.Op]time.Duration
}

func slowly[T any](ctx context.Context, delay time.Duration, f func() (T, error)) (T, error) {
	type answer struct {
		t   T
		err error
	}
	answered := make(chan answer, 1)
	go func() {
		time.Sleep(delay / 2)
		t, err := f()
		time.Sleep(delay - delay/2)
		answered <- answer{t, err}
	}()
	select {
	case a := <-answered:
		return a.t, a.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

func (s *slowStore) TryAcquire(ctx context.Context, c driver.Claim) (driver.Answer, error) {
	return slowly(ctx, s.delay[driver.OpAcquire], func() (driver.Answer, error) {
		return s.Locker.TryAcquire(context.Background(), c)
	})
}

func (s *slowStore) Renew(ctx context.Context, c driver.Claim) (bool, error) {
	return slowly(ctx, s.delay[driver.OpRenew], func() (bool, error) { return s.Locker.Renew(context.Background(), c) })
}

func (s *slowStore) Release(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
	return slowly(ctx, s.delay[driver.OpRelease], func() (bool, error) { return s.Locker.Release(context.Background(), c, after) })
}

// plain hides what a Locker can do beside its three methods.
type plain struct{ driver.Locker }

// A slowCell is one situation of TestSlow_…: which calls are slow, and how slow.
type slowCell struct {
	ttl, delay time.Duration
	slow       string
	once       bool
}

func slowCells() (cells []slowCell) {
	for _, ttl := range []time.Duration{time.Second, 10 * time.Second, guard.DefaultTTL, 2 * time.Minute, 10 * time.Minute} {
		for _, delay := range []time.Duration{
			300 * time.Millisecond, time.Second, 2 * time.Second, 3 * time.Second, 4500 * time.Millisecond,
			5100 * time.Millisecond, ttl / 8, ttl / 4, ttl / 3, ttl / 2, 2 * ttl,
		} {
			for _, slow := range []string{"claim", "renew", "release", "all"} {
				cells = append(cells, slowCell{ttl, delay, slow, false}, slowCell{ttl, delay, slow, true})
			}
		}
	}
	return cells
}

// tolerable reports whether a store this slow must cost nothing.
func (c slowCell) tolerable() bool { return c.delay <= c.ttl/4 }

// A slow store is not away: up to a quarter of the TTL it costs no lease, no marker and no error.
// However slow it is, there is one holder at a time, and the key is free in the end.
func TestSlow_aStoreCostsNothingUpToAQuarterOfTheTTL(t *testing.T) {
	for _, c := range slowCells() {
		t.Run(fmt.Sprintf("%s %v of TTL %v, once %t", c.slow, c.delay, c.ttl, c.once), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.test(t) })
		})
	}
}

func (c slowCell) test(t *testing.T) {
	inner := memory.New()
	store := &slowStore{Locker: inner, delay: map[driver.Op]time.Duration{}}
	for name, op := range map[string]driver.Op{"claim": driver.OpAcquire, "renew": driver.OpRenew, "release": driver.OpRelease} {
		if c.slow == name || c.slow == "all" {
			store.delay[op] = c.delay
		}
	}
	g := openGuard(t, plain{store}, guard.WithTTL(c.ttl))
	other, err := guard.New(plain{inner}, guard.WithTTL(c.ttl))
	require.NoError(t, err)

	var inside atomic.Int32
	once := func(opts ...guard.Option) []guard.Option {
		if c.once {
			return append(opts, guard.WithOnce(time.Hour))
		}
		return opts
	}
	over := make(chan struct{})
	go func() { // another process that wants the key all the time
		for {
			_ = other.Do(t.Context(), "k", func(context.Context) error {
				assert.Zero(t, inside.Load(), "another process holds the key while the context of the first lives")
				return errors.New("again")
			}, once()...)
			select {
			case <-over:
				return
			case <-time.After(c.ttl / 50):
			}
		}
	}()

	for _, work := range []time.Duration{0, c.ttl / 2, 3*c.ttl + c.ttl/5} {
		err = g.Do(t.Context(), "k", func(ctx context.Context) error {
			inside.Store(1)
			defer inside.Store(0)
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(work):
			}
			return nil
		}, once(guard.WithWait(20*c.ttl))...)
		if c.tolerable() {
			require.NoError(t, err, "after %v of work", work)
		}
		if c.once && err == nil {
			require.ErrorIs(t, other.Do(t.Context(), "k", nothing, once()...), guard.ErrDone, "nil means that the marker is there")
			forgotten, err := inner.Forget(t.Context(), "k")
			require.NoError(t, err)
			require.True(t, forgotten)
		}
	}
	close(over)
	time.Sleep(2 * (c.ttl + c.delay))       // a claim may still arrive
	_, err = inner.Forget(t.Context(), "k") // a marker of which only an error was known
	require.NoError(t, err)
	require.NoError(t, other.Do(t.Context(), "k", nothing), "nobody holds the key in the end")
	closing := within(t, 10*c.ttl+time.Minute)
	if err := g.Close(closing); c.tolerable() || !errors.Is(err, guard.ErrStore) {
		require.NoError(t, err)
	}
	require.NoError(t, other.Close(t.Context()))
	time.Sleep(2 * c.delay) // until the store has answered all
}

func TestSlow_aRenewalThatIsAnsweredLateCountsFromItsSending(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		var sent time.Time
		store.OnRenew = func(ctx context.Context, n int, c driver.Claim) (bool, error) {
			if n > 1 {
				return false, frozen(ctx)
			}
			sent = time.Now()
			held, err := store.memory.Renew(ctx, c)
			if err != nil || !held {
				return held, err
			}
			return slowly(ctx, ttl/2, func() (bool, error) { return true, nil })
		}
		lease := hold(t, g, "k")
		<-lease.Context().Done()
		require.Equal(t, ttl-margin, time.Since(sent))
		require.Greater(t, store.count(driver.OpRenew), 2, "the others went out beside it")
		require.ErrorIs(t, lease.Release(t.Context()), guard.ErrLost)
	})
}

// A renewal can wait for its turn until it is overdue, and be sent while that is being reported.
func TestSlow_anOverdueRenewalIsReportedAsItWasWhenItBecameOverdue(t *testing.T) {
	var seen recorder
	inBubble(t, func(t *testing.T, g *guard.Guard, _ *testStore) {
		lease := hold(t, g, "k")
		start := time.Now()
		guard.RenewLate(lease, time.Second)
		require.NoError(t, lease.Release(t.Context()))
		synctest.Wait()
		overdue := last[guard.RenewEvent](t, &seen)
		require.ErrorContains(t, overdue.Err, "no answer for a quarter of the TTL")
		require.Zero(t, overdue.Duration)
		require.Equal(t, start, overdue.Start)
	}, guard.WithHook(seen.hook()))
}

func TestSlow_renewalsOfALockerThatNeverReturnsAreFew(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		forever := make(chan struct{})
		store.OnRenew = func(context.Context, int, driver.Claim) (bool, error) {
			<-forever
			return false, errors.New("never")
		}
		lease := hold(t, g, "k")
		time.Sleep(100 * ttl)
		require.LessOrEqual(t, store.count(driver.OpRenew), 4)
		require.ErrorIs(t, lease.Release(t.Context()), guard.ErrLost)
		close(forever)
	})
}

// What a run with a marker returns if releases have no answer: until when, whether they arrive
// nevertheless, and what becomes of the marker.
func TestSlow_aMarkerIsReportedMissingOnlyIfItIsOrNobodyCanTell(t *testing.T) {
	const forever = 100 * ttl
	for name, c := range map[string]struct {
		silent  time.Duration // for how long releases have no answer
		first   bool          // only the first one has none
		arrives bool          // they arrive nevertheless
		err     error
		took    time.Duration // at most
		marker  error         // to the next caller, then
	}{
		"a dead connection":            {silent: forever, first: true, took: ttl/3 + time.Second, marker: guard.ErrDone},
		"until shortly before the end": {silent: ttl / 2, arrives: true, took: ttl, marker: guard.ErrDone},
		"until after the end":          {silent: ttl + time.Second, arrives: true, took: ttl + 2*time.Second, marker: guard.ErrDone},
		"forever":                      {silent: forever, arrives: true, err: guard.ErrMarker, took: ttl + 2*time.Second, marker: guard.ErrDone},
		"lost, until after the end":    {silent: ttl + time.Second, err: guard.ErrMarker, took: ttl + 2*time.Second},
		"lost, forever":                {silent: forever, err: guard.ErrMarker, took: ttl + 2*time.Second},
	} {
		inBubbleOf(t, name, func(t *testing.T, g *guard.Guard, store *testStore) {
			start := time.Now()
			store.OnRelease = func(ctx context.Context, n int, claim driver.Claim, after driver.After) (bool, error) {
				if time.Since(start) >= c.silent || c.first && n > 1 {
					return store.memory.Release(ctx, claim, after)
				}
				if c.arrives {
					_, _ = store.memory.Release(context.WithoutCancel(ctx), claim, after)
				}
				silence, cancel := context.WithDeadline(ctx, start.Add(c.silent))
				defer cancel()
				if <-silence.Done(); ctx.Err() != nil {
					return false, ctx.Err()
				}
				return store.memory.Release(ctx, claim, after)
			}
			err := g.Do(t.Context(), "k", nothing, guard.WithOnce(time.Hour))
			require.ErrorIs(t, err, c.err)
			require.LessOrEqual(t, time.Since(start), c.took)
			synctest.Wait() // the cleaner has read OnRelease
			store.OnRelease = nil
			require.ErrorIs(t, g.Do(t.Context(), "k", nothing), c.marker)
		})
	}
}

func TestSlow_closeEndsCallsToAStoreThatDoesNotAnswer(t *testing.T) {
	const long = 10 * time.Minute
	for name, call := range map[string]func(g *guard.Guard, store *testStore) error{
		"claim": func(g *guard.Guard, store *testStore) error {
			store.OnAcquire = noAnswer
			return g.Do(context.Background(), "k", nothing)
		},
		"release with a marker": func(g *guard.Guard, store *testStore) error {
			store.freezeReleases()
			return g.Do(context.Background(), "k", nothing, guard.WithOnce(time.Hour))
		},
		"release with a marker that begins later": func(g *guard.Guard, store *testStore) error {
			store.freezeReleases()
			return g.Do(context.Background(), "k", sleeping(time.Minute), guard.WithOnce(time.Hour))
		},
		"renewal": func(g *guard.Guard, store *testStore) error {
			store.OnRenew = noRenewal
			return g.Do(context.Background(), "k", sleeping(long/2))
		},
	} {
		inBubbleOf(t, name, func(t *testing.T, g *guard.Guard, store *testStore) {
			ended := make(chan struct{})
			start := time.Now()
			go func() {
				defer close(ended)
				_ = call(g, store)
			}()
			time.Sleep(time.Second)
			_ = g.Close(context.Background())
			<-ended
			limit := 12 * time.Second
			switch name {
			case "renewal":
				limit = long / 2
			case "release with a marker that begins later":
				limit += time.Minute
			}
			require.LessOrEqual(t, time.Since(start), limit)
		}, guard.WithTTL(long))
	}
}
