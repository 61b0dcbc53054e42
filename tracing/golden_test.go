package tracing_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	"github.com/seed-1795987d/onerun/tracing"
)

const ttl = 20 * time.Second

// A site is two processes of an application over one store, in virtual time, seen by one
// telescope.
type site struct {
	*telescope
	store *guardtest.Scripted
	inner *memory.Locker
	one   *guard.Guard
	other *guard.Guard
}

// inSite runs f, and then compares what was seen with the golden file of that name.
func inSite(t *testing.T, golden string, f func(t *testing.T, s *site), opts ...guard.Option) {
	t.Helper()
	inNamelessSite(t, golden, f, append([]guard.Option{guard.WithName("report")}, opts...)...)
}

// inNamelessSite is inSite for work that is named by an adapter.
func inNamelessSite(t *testing.T, golden string, f func(t *testing.T, s *site), opts ...guard.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, newTelescope(t), opts...)
		f(t, s)
		s.close(t)
		s.requireGolden(t, golden)
		s.requireBalanced(t)
	})
}

// newSite returns a site whose close must be called.
func newSite(t *testing.T, seen *telescope, opts ...guard.Option) *site {
	t.Helper()
	inner := memory.New()
	s := &site{telescope: seen, store: &guardtest.Scripted{Inner: inner}, inner: inner}
	opts = append([]guard.Option{guard.WithNamespace("test"), guard.WithTTL(ttl), guard.WithLabel("one"), guard.WithHook(s.hook), guard.WithHook(s.log)}, opts...)
	store := struct {
		guard.Locker
		driver.Ledger
	}{s.store, inner}
	var err error
	s.one, err = guard.New(store, opts...)
	require.NoError(t, err)
	s.other, err = guard.New(store, append(opts, guard.WithLabel("other"))...)
	require.NoError(t, err)
	return s
}

// close closes the Guards, and waits until all events were reported.
func (s *site) close(t *testing.T) {
	t.Helper()
	require.NoError(t, s.one.Close(context.Background()))
	require.NoError(t, s.other.Close(context.Background()))
	synctest.Wait()
}

// requireBalanced fails if something that is counted up is not counted down again in the end.
func (s *telescope) requireBalanced(t *testing.T) {
	t.Helper()
	for name, m := range s.metrics(t) {
		if len(name) > 7 && name[len(name)-7:] == ".active" {
			for _, line := range points(m) {
				require.Regexp(t, `\} 0$`, line)
			}
		}
	}
}

// in runs f in a span of the application.
func (s *site) in(ctx context.Context, name string, f func(ctx context.Context)) {
	ctx, span := s.tracer.Start(ctx, name)
	defer span.End()
	f(ctx)
}

func nothing(context.Context) error { return nil }

func sleeps(d time.Duration) func(context.Context) error {
	return func(context.Context) error { time.Sleep(d); return nil }
}

func TestGolden_aRun(t *testing.T) {
	inSite(t, "run", func(t *testing.T, s *site) {
		s.in(t.Context(), "request", func(ctx context.Context) {
			require.NoError(t, s.one.Do(ctx, "k", func(ctx context.Context) error {
				time.Sleep(8 * time.Second) // renewed once
				s.in(ctx, "work of the function", func(context.Context) {})
				return s.one.Do(ctx, "k", sleeps(time.Second)) // joins
			}))
		})
	})
}

func TestGolden_aRunThatFails(t *testing.T) {
	inSite(t, "failure", func(t *testing.T, s *site) {
		mine := errors.New("mine: secret")
		require.ErrorIs(t, s.one.Do(t.Context(), "k", func(context.Context) error { return mine }), mine)
	})
}

func TestGolden_aWaitForAHolderThatReleases(t *testing.T) {
	inSite(t, "wait", func(t *testing.T, s *site) {
		held := make(chan struct{})
		go s.in(t.Context(), "first", func(ctx context.Context) {
			require.NoError(t, s.one.Do(ctx, "k", func(context.Context) error { close(held); time.Sleep(4 * time.Second); return nil }))
		})
		<-held
		s.in(t.Context(), "second", func(ctx context.Context) {
			require.NoError(t, s.other.Do(ctx, "k", nothing, guard.WithWait(time.Minute)))
		})
	})
}

func TestGolden_aHandOffFromOneToTheNext(t *testing.T) {
	inSite(t, "hand-over", func(t *testing.T, s *site) {
		var all sync.WaitGroup
		for name, g := range map[string]*guard.Guard{"first": s.one, "second": s.other, "third": s.one} {
			begin := map[string]time.Duration{"first": 0, "second": time.Second, "third": 4 * time.Second}[name]
			all.Go(func() {
				time.Sleep(begin)
				s.in(t.Context(), name, func(ctx context.Context) {
					assert.NoError(t, g.Do(ctx, "k", sleeps(3*time.Second), guard.WithWait(time.Minute)))
				})
			})
		}
		all.Wait()
	})
}

func TestGolden_aHandOffInsideTheProcess(t *testing.T) {
	inSite(t, "hand-over-in-process", func(t *testing.T, s *site) {
		lease, err := s.other.Acquire(t.Context(), "k")
		require.NoError(t, err)
		var all sync.WaitGroup
		for _, name := range []string{"first", "second", "third"} {
			all.Go(func() {
				s.in(t.Context(), name, func(ctx context.Context) {
					assert.NoError(t, s.one.Do(ctx, "k", sleeps(time.Millisecond), guard.WithWait(time.Minute)))
				})
			})
			synctest.Wait() // in this order
			time.Sleep(200 * time.Millisecond)
		}
		time.Sleep(1500 * time.Millisecond)
		require.NoError(t, lease.Release(t.Context()))
		all.Wait()
	})
}

func TestGolden_aTakeoverFromAHolderThatHasDied(t *testing.T) {
	inSite(t, "takeover", func(t *testing.T, s *site) {
		lease, err := s.one.Acquire(t.Context(), "k", guard.WithoutRenewal())
		require.NoError(t, err)
		s.store.OnRelease = func(ctx context.Context, n int, c driver.Claim, after driver.After) (bool, error) {
			return s.inner.Release(ctx, c, after)
		}
		s.in(t.Context(), "second", func(ctx context.Context) {
			require.NoError(t, s.other.Do(ctx, "k", nothing, guard.WithWait(time.Minute)))
		})
		require.ErrorIs(t, lease.Release(t.Context()), guard.ErrLost)
	})
}

func TestGolden_aSkip(t *testing.T) {
	inSite(t, "skip", func(t *testing.T, s *site) {
		s.in(t.Context(), "first", func(ctx context.Context) {
			require.NoError(t, s.one.Do(ctx, "k", func(context.Context) error {
				s.in(t.Context(), "second", func(ctx context.Context) { require.ErrorIs(t, s.other.Do(ctx, "k", nothing), guard.ErrBusy) })
				return nil
			}))
		})
	})
}

func TestGolden_done(t *testing.T) {
	inSite(t, "done", func(t *testing.T, s *site) {
		s.in(t.Context(), "first", func(ctx context.Context) { require.NoError(t, s.one.Do(ctx, "k", nothing)) })
		s.in(t.Context(), "second", func(ctx context.Context) { require.ErrorIs(t, s.other.Do(ctx, "k", nothing), guard.ErrDone) })
	}, guard.WithOnce(time.Hour))
}

func TestGolden_aLossBecauseTheStoreIsAway(t *testing.T) {
	inSite(t, "loss-expired", func(t *testing.T, s *site) {
		s.store.OnRenew = func(context.Context, int, driver.Claim) (bool, error) {
			return false, guardtest.Fail(driver.KindConnection)
		}
		require.ErrorIs(t, s.one.Do(t.Context(), "k", func(ctx context.Context) error { <-ctx.Done(); return nil }), guard.ErrLost)
	})
}

func TestGolden_aLossToSomebodyElse(t *testing.T) {
	inSite(t, "loss-not-held", func(t *testing.T, s *site) {
		s.store.OnRenew = func(context.Context, int, driver.Claim) (bool, error) { return false, nil }
		require.ErrorIs(t, s.one.Do(t.Context(), "k", func(ctx context.Context) error { <-ctx.Done(); return nil }), guard.ErrLost)
	})
}

func TestGolden_aLossToAnOperator(t *testing.T) {
	inSite(t, "loss-broken", func(t *testing.T, s *site) {
		s.store.OnRenew = func(ctx context.Context, _ int, c driver.Claim) (bool, error) {
			return false, s.one.Adapter().RecordBreak(ctx, c.ID, "broken by alice: it hangs")
		}
		require.ErrorContains(t, s.one.Do(t.Context(), "k", func(ctx context.Context) error { <-ctx.Done(); return nil }), "broken by alice")
	})
}

func TestGolden_aRunThatTakesTooLong(t *testing.T) {
	inSite(t, "loss-max-hold", func(t *testing.T, s *site) {
		require.ErrorIs(t, s.one.Do(t.Context(), "k", func(ctx context.Context) error { <-ctx.Done(); return nil }, guard.WithMaxHold(4*time.Second)), guard.ErrLost)
	})
}

func TestGolden_aPanic(t *testing.T) {
	inSite(t, "panic", func(t *testing.T, s *site) {
		require.Panics(t, func() { _ = s.one.Do(t.Context(), "k", func(context.Context) error { panic("secret") }) })
	})
}

func TestGolden_aStoreThatCannotBeAsked(t *testing.T) {
	inSite(t, "store-failure", func(t *testing.T, s *site) {
		s.store.OnAcquire = func(context.Context, int, driver.Claim) (driver.Answer, error) {
			return driver.Answer{}, guardtest.Fail(driver.KindAuth)
		}
		require.ErrorIs(t, s.one.Do(t.Context(), "k", nothing), guard.ErrStore)
		time.Sleep(time.Minute)
		s.store.OnAcquire = nil
		require.NoError(t, s.one.Do(t.Context(), "k", nothing))
	})
}

func TestGolden_aReleaseThatFails(t *testing.T) {
	inSite(t, "release-failure", func(t *testing.T, s *site) {
		start := time.Now()
		s.store.OnRelease = func(ctx context.Context, n int, c driver.Claim, after driver.After) (bool, error) {
			if time.Since(start) < 10*time.Second {
				return false, guardtest.Fail(driver.KindTimeout)
			}
			return s.inner.Release(ctx, c, after)
		}
		require.ErrorIs(t, s.one.Do(t.Context(), "k", nothing, guard.WithOnce(time.Hour)), guard.ErrMarker)
		time.Sleep(time.Minute)
	})
}

func TestGolden_aWaitThatIsLongAndGivenUp(t *testing.T) {
	inSite(t, "wait-long", func(t *testing.T, s *site) {
		lease, err := s.one.Acquire(t.Context(), "k")
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		require.ErrorIs(t, s.other.Do(ctx, "k", nothing, guard.WithWait(guard.Forever)), context.DeadlineExceeded)
		require.ErrorIs(t, s.other.Do(t.Context(), "k", nothing, guard.WithWait(time.Second)), guard.ErrBusy)
		require.NoError(t, lease.Release(t.Context()))
	})
}

func TestGolden_aGuardThatIsClosedUnderARun(t *testing.T) {
	inSite(t, "closed", func(t *testing.T, s *site) {
		go func() {
			time.Sleep(time.Second)
			ended, cancel := context.WithCancel(context.Background())
			cancel()
			_ = s.one.Close(ended)
		}()
		require.ErrorIs(t, s.one.Do(t.Context(), "k", func(ctx context.Context) error { <-ctx.Done(); return nil }), guard.ErrClosed)
	})
}

// inRenewal calls f after a run that was renewed once.
func inRenewal(t *testing.T, f func(t *testing.T, s *site), opts ...tracing.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, newTelescope(t, opts...), guard.WithName("report"))
		require.NoError(t, s.one.Do(t.Context(), "k", sleeps(8*time.Second)))
		s.close(t)
		f(t, s)
	})
}
