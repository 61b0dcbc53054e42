package guard_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

func exits() (rows []exit) {
	add := func(state, how string, play func(s *exitScene)) {
		rows = append(rows, exit{state: state, how: how, play: play})
	}
	addClose := func(state string, says string, play func(s *exitScene)) {
		rows = append(rows, exit{state: state, how: "Close", play: play, closes: true, closeError: says})
	}
	soon := func() { time.Sleep(time.Second); synctest.Wait() }

	// Asking: the store has granted the claim, but the answer has not arrived yet.
	for _, a := range aborts {
		add("asking", a.name+" in the Locker", func(s *exitScene) {
			s.onAcquire(func(context.Context, driver.Answer) (driver.Answer, error) {
				time.Sleep(time.Second)
				a.abort()
				return driver.Answer{}, nil
			})
			s.subject(guard.WithWait(time.Minute))
			s.waitBehind()
		})
		for _, hook := range []string{"AcquireStart", "Call", "AcquireEnd", "RunStart", "RunEnd", "Release"} {
			add("calling a hook", a.name+" in the hook "+hook, func(s *exitScene) {
				s.opts = append(s.opts, guard.WithHook(hookOf(hook, func() { time.Sleep(time.Second); a.abort() })))
				s.subject(guard.WithWait(time.Minute))
				s.waitBehind()
			})
		}
	}
	slow := func(s *exitScene) {
		s.onAcquire(func(ctx context.Context, _ driver.Answer) (driver.Answer, error) { return driver.Answer{}, frozen(ctx) })
	}
	add("asking", "cancel", func(s *exitScene) {
		slow(s)
		s.subject()
		s.waitBehind()
		s.cancel()
	})
	add("asking", "lost answer", func(s *exitScene) {
		s.onAcquire(func(context.Context, driver.Answer) (driver.Answer, error) {
			return driver.Answer{}, errors.New("reset")
		})
		s.subject()
		s.waitBehind()
	})
	add("asking", "suspended host", func(s *exitScene) {
		s.onAcquire(func(_ context.Context, grant driver.Answer) (driver.Answer, error) {
			time.Sleep(time.Second)
			s.asleep.Add(int64(time.Minute))
			return grant, nil
		})
		s.subject()
		s.waitBehind()
	})
	addClose("asking", "", func(s *exitScene) {
		s.onAcquire(func(_ context.Context, grant driver.Answer) (driver.Answer, error) {
			time.Sleep(time.Second)
			return grant, nil
		})
		s.subject()
		s.waitBehind()
		s.closeInBackground(time.Minute)
	})
	addClose("asking a store that does not answer", "1 claim was not released", func(s *exitScene) {
		slow(s)
		s.store.freezeReleases()
		s.subject()
		s.waitBehind()
		s.closeInBackground(6 * time.Second)
		time.Sleep(6 * time.Second)
	})

	// Waiting at the head of the queue: another process holds the key.
	atHead := func(f func(s *exitScene)) func(s *exitScene) {
		return func(s *exitScene) {
			release := s.holdElsewhere()
			s.subject(guard.WithWait(guard.Forever))
			s.waitBehind()
			soon()
			f(s)
			soon()
			release()
		}
	}
	add("waiting at the head", "cancel", atHead(func(s *exitScene) { s.cancel() }))
	add("waiting at the head", "suspended host", atHead(func(s *exitScene) { s.asleep.Add(int64(time.Minute)) }))
	addClose("waiting at the head", "", atHead(func(s *exitScene) { s.closeInBackground(time.Minute) }))
	for _, a := range aborts {
		add("waiting at the head", a.name+" in the Locker", func(s *exitScene) {
			var armed atomic.Bool
			s.store.OnAcquire = func(ctx context.Context, _ int, c driver.Claim) (driver.Answer, error) {
				if armed.CompareAndSwap(true, false) {
					a.abort()
				}
				return s.store.memory.TryAcquire(ctx, c)
			}
			atHead(func(*exitScene) { armed.Store(true) })(s)
		})
		add("waiting at the head", a.name+" in the hook Wait", func(s *exitScene) {
			release := s.holdElsewhere()
			s.opts = append(s.opts, guard.WithHook(hookOf("Wait", func() { time.Sleep(time.Second); a.abort() })))
			s.subject(guard.WithWait(guard.Forever))
			s.waitBehind()
			time.Sleep(2 * time.Second)
			release()
		})
	}

	// Waiting behind others: the subject is the second waiter.
	behind := func(f func(s *exitScene)) func(s *exitScene) {
		return func(s *exitScene) {
			release := s.holdElsewhere()
			s.all.Go(func() { _ = s.g.Do(s.t.Context(), "k", nothing, guard.WithWait(guard.Forever)) })
			synctest.Wait()
			s.subject(guard.WithWait(guard.Forever))
			s.waitBehind()
			soon()
			f(s)
			soon()
			release()
		}
	}
	add("waiting behind others", "cancel", behind(func(s *exitScene) { s.cancel() }))
	add("waiting behind others", "suspended host", behind(func(s *exitScene) { s.asleep.Add(int64(time.Minute)) }))
	addClose("waiting behind others", "", behind(func(s *exitScene) { s.closeInBackground(time.Minute) }))
	for _, a := range aborts {
		add("waiting behind others", a.name+" in the hook Wait", func(s *exitScene) {
			s.opts = append(s.opts, guard.WithHook(hookOf("Wait", func() { time.Sleep(time.Second); a.abort() })))
			behind(func(*exitScene) {})(s)
		})
	}

	// Receiving a hand-off: the call before the subject releases at the moment of the exit.
	handOff := func(f func(s *exitScene)) func(s *exitScene) {
		return func(s *exitScene) {
			s.all.Go(func() { // the first grant reserves no fences
				_ = s.g.Do(s.t.Context(), "k", sleeping(time.Second))
			})
			synctest.Wait()
			s.all.Go(func() {
				_ = s.g.Do(s.t.Context(), "k", func(context.Context) error {
					time.Sleep(time.Millisecond)
					f(s)
					return nil
				}, guard.WithWait(guard.Forever))
			})
			synctest.Wait()
			s.subject(guard.WithWait(guard.Forever))
			s.waitBehind()
			time.Sleep(time.Second)
		}
	}
	add("receiving a hand-off", "cancel", handOff(func(s *exitScene) { s.cancel() }))
	add("receiving a hand-off", "suspended host", handOff(func(s *exitScene) { s.asleep.Add(int64(time.Minute)) }))
	addClose("about to receive a hand-off", "", handOff(func(s *exitScene) {
		s.all.Go(func() { s.closing <- s.g.Close(s.t.Context()) })
		synctest.Wait()
	}))
	addClose("receiving a hand-off", "", func(s *exitScene) {
		var once sync.Once // and not for each key
		s.opts = append(s.opts, guard.WithHook(hookOf("AcquireEnd", func() {
			once.Do(func() {
				s.all.Go(func() { s.closing <- s.g.Close(s.t.Context()) })
				synctest.Wait()
			})
		})))
		handOff(func(*exitScene) {})(s)
	})
	add("receiving a hand-off", "return", handOff(func(*exitScene) {}))
	for _, a := range aborts {
		for _, hook := range []string{"AcquireEnd", "RunStart"} {
			add("receiving a hand-off", a.name+" in the hook "+hook, func(s *exitScene) {
				s.opts = append(s.opts, guard.WithHook(hookOf(hook, a.abort)))
				handOff(func(*exitScene) {})(s)
			})
		}
	}

	// Running: the subject's function runs.
	running := func(body func(ctx context.Context) error, f func(s *exitScene)) func(s *exitScene) {
		return func(s *exitScene) {
			s.body = body
			s.subject()
			s.waitBehind()
			soon()
			f(s)
		}
	}
	untilDone := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	add("running", "return", running(sleeping(2*time.Second), func(*exitScene) {}))
	for _, a := range aborts {
		add("running", a.name, running(func(context.Context) error { time.Sleep(2 * time.Second); a.abort(); return nil }, func(*exitScene) {}))
	}
	add("running", "cancel", running(untilDone, func(s *exitScene) { s.cancel() }))
	add("running", "loss", running(untilDone, func(s *exitScene) { s.store.release(s.t, s.claim(), driver.After{}) }))
	add("running", "suspended host", running(untilDone, func(s *exitScene) { s.asleep.Add(int64(time.Minute)) }))
	addClose("running", "1 lease was revoked", running(untilDone, func(s *exitScene) { s.closeInBackground(time.Second) }))

	// Releasing: the store does not receive the first release.
	releasing := func(first func(s *exitScene, ctx context.Context) (bool, error), f func(s *exitScene)) func(s *exitScene) {
		return func(s *exitScene) {
			s.onRelease(func(ctx context.Context, _ bool) (bool, error) { return first(s, ctx) })
			s.body = sleeping(time.Second)
			s.subject()
			s.waitBehind()
			time.Sleep(time.Second)
			synctest.Wait()
			f(s)
		}
	}
	noAnswer := func(_ *exitScene, ctx context.Context) (bool, error) { return false, frozen(ctx) }
	for _, a := range aborts {
		add("releasing", a.name+" in the Locker", releasing(func(*exitScene, context.Context) (bool, error) {
			a.abort()
			return false, nil
		}, func(*exitScene) {}))
	}
	add("releasing", "cancel", releasing(noAnswer, func(s *exitScene) { s.cancel() }))
	add("releasing", "lost answer", releasing(func(*exitScene, context.Context) (bool, error) {
		return false, errors.New("reset")
	}, func(*exitScene) {}))
	add("releasing", "suspended host", releasing(noAnswer, func(s *exitScene) { s.asleep.Add(int64(time.Minute)) }))
	addClose("releasing", "", releasing(noAnswer, func(s *exitScene) { s.closeInBackground(time.Minute) }))
	add("releasing", "loss", releasing(func(s *exitScene, _ context.Context) (bool, error) {
		s.store.release(s.t, s.claim(), driver.After{})
		return false, nil
	}, func(*exitScene) {}))

	// Renewing: the subject's function runs, and a renewal is under way.
	renewing := func(first func(s *exitScene, ctx context.Context) (bool, error), f func(s *exitScene)) func(s *exitScene) {
		return func(s *exitScene) {
			begun, renewals := time.Now(), new(atomic.Int32)
			s.store.OnRenew = func(ctx context.Context, _ int, c driver.Claim) (bool, error) {
				if c.Key == "k" && time.Since(begun) > 0 && renewals.Add(1) == 1 { // no raise
					return first(s, ctx)
				}
				return s.store.memory.Renew(context.WithoutCancel(ctx), c)
			}
			s.body = func(ctx context.Context) error {
				select {
				case <-time.After(ttl):
				case <-ctx.Done():
				}
				return nil
			}
			s.subject()
			s.waitBehind()
			time.Sleep(ttl/3 + time.Millisecond)
			synctest.Wait()
			f(s)
		}
	}
	for _, a := range aborts {
		add("renewing", a.name+" in the Locker", renewing(func(*exitScene, context.Context) (bool, error) {
			a.abort()
			return false, nil
		}, func(*exitScene) {}))
		for _, hook := range []string{"Renew", "Loss"} {
			add("renewing", a.name+" in the hook "+hook, func(s *exitScene) {
				s.opts = append(s.opts, guard.WithHook(hookOf(hook, a.abort)))
				renewing(func(*exitScene, context.Context) (bool, error) { return hook == "Renew", nil }, func(*exitScene) {})(s)
			})
		}
	}
	add("renewing", "loss", renewing(func(*exitScene, context.Context) (bool, error) { return false, nil }, func(*exitScene) {}))
	add("renewing", "cancel", renewing(noAnswer, func(s *exitScene) { s.cancel() }))
	add("renewing", "suspended host", renewing(noAnswer, func(s *exitScene) { s.asleep.Add(int64(time.Minute)) }))
	addClose("renewing", "1 lease was revoked", renewing(noAnswer, func(s *exitScene) { s.closeInBackground(100 * time.Millisecond) }))
	return rows
}

// Whatever a call is doing and however it ends, the queue keeps moving and the key becomes free.
func TestExits(t *testing.T) {
	for _, e := range exits() {
		for of, keys := range map[string][]string{"": {"k"}, ", several keys": {"j", "k"}} {
			inTimeOf(t, e.state+", "+e.how+of, func(t *testing.T) {
				s := newExitScene(t, keys)
				defer s.cancel()
				e.play(s)
				s.check(e)
			})
		}
	}
}
