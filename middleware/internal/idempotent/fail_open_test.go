package idempotent_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// An outage is a site over a store whose answers a test specifies.
type outage struct {
	guardtest.Scripted
	*site
	handler handler // or nil
}

// inOutage runs f in a bubble. The bubble fails if f leaves a goroutine behind.
func inOutage(t *testing.T, f func(t *testing.T, s *outage), opts ...idempotency.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &outage{Scripted: guardtest.Scripted{Inner: newStore()}}
		s.site = newSite(t, s, opts...)
		f(t, s)
	})
}

// post makes a call.
func (s *outage) post(ctx context.Context, key string) *call {
	return s.send(ctx, request{key: key, handler: s.handler})
}

// asked returns how many requests for a lease the store has got.
func (s *outage) asked() (n int) {
	for _, call := range s.Calls() {
		if call.Op == driver.OpAcquire {
			n++
		}
	}
	return n
}

// silences are ways for a store to leave a request for a lease without an answer in time.
var silences = map[string]func(ctx context.Context, inner driver.Locker, c driver.Claim) (driver.Answer, error){
	"it hangs": func(ctx context.Context, _ driver.Locker, _ driver.Claim) (driver.Answer, error) {
		return driver.Answer{}, guardtest.Hang(ctx)
	},
	"its reply is dropped": func(ctx context.Context, inner driver.Locker, c driver.Claim) (driver.Answer, error) {
		_, _ = inner.TryAcquire(ctx, c)
		return driver.Answer{}, guardtest.Hang(ctx)
	},
	"it gets the request late": func(ctx context.Context, inner driver.Locker, c driver.Claim) (driver.Answer, error) {
		late := context.WithoutCancel(ctx)
		time.AfterFunc(400*time.Millisecond, func() { _, _ = inner.TryAcquire(late, c) })
		return driver.Answer{}, guardtest.Hang(ctx)
	},
}

// A call whose own deadline is short runs without a lease, too, and has time left for it. The
// store is left alone if it has not answered for 250 ms.
func TestFailOpen_withAnyDeadline(t *testing.T) {
	t.Parallel()
	for name, answer := range silences {
		for _, limit := range []time.Duration{
			0, 10 * time.Millisecond, 50 * time.Millisecond, 200 * time.Millisecond,
			250 * time.Millisecond, 499 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second,
		} {
			t.Run(fmt.Sprint(name, ", ", limit), func(t *testing.T) {
				inOutage(t, func(t *testing.T, s *outage) {
					s.OnAcquire = func(ctx context.Context, _ int, c driver.Claim) (driver.Answer, error) {
						return answer(ctx, s.Inner, c)
					}
					s.handler = func(ctx context.Context) (string, error) {
						require.NoError(t, ctx.Err(), "it has time left")
						return "answer", nil
					}
					for run := range 10 {
						ctx, cancel := t.Context(), context.CancelFunc(func() {})
						if limit > 0 {
							ctx, cancel = context.WithTimeout(ctx, limit)
						}
						o := s.post(ctx, fmt.Sprint("k", run))
						cancel()
						require.Equal(t, idempotency.Degraded, o.Result)
						require.ErrorIs(t, o.Err, guard.ErrStore)
						require.True(t, guard.Ran(o.Err))
					}
					require.Equal(t, 10, s.runs)
					if limit == 0 || limit >= 500*time.Millisecond {
						require.Less(t, s.asked(), 10)
					}
				}, idempotency.WithFailOpen())
			})
		}
	}
}

// A client that leaves, or whose deadline is short, says nothing about the store: it cannot turn
// off the leases of others.
func TestFailOpen_noClientTurnsOffTheLeasesOfOthers(t *testing.T) {
	t.Parallel()
	leave := func(after time.Duration) func(context.Context) (context.Context, context.CancelFunc) {
		return func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			if after == 0 {
				cancel()
			} else {
				time.AfterFunc(after, cancel)
			}
			return ctx, cancel
		}
	}
	deadline := func(d time.Duration) func(context.Context) (context.Context, context.CancelFunc) {
		return func(ctx context.Context) (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, d) }
	}
	late := func(context.Context) error {
		time.Sleep(260 * time.Millisecond)
		return guardtest.Fail(driver.KindTimeout)
	}
	for name, end := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"leaves before the store is asked": leave(0), "leaves": leave(100 * time.Millisecond), "leaves late": leave(249 * time.Millisecond),
		"deadline of 1 ms": deadline(time.Millisecond), "deadline of 499 ms": deadline(499 * time.Millisecond),
	} {
		for how, answer := range map[string]func(context.Context) error{"hangs": guardtest.Hang, "times out": late} {
			for _, was := range []bool{false, true} {
				t.Run(fmt.Sprint(name, ", the store ", how, ", after an outage: ", was), func(t *testing.T) {
					inOutage(t, func(t *testing.T, s *outage) {
						s.OnAcquire = func(ctx context.Context, _ int, _ driver.Claim) (driver.Answer, error) {
							return driver.Answer{}, guardtest.Hang(ctx)
						}
						if was {
							require.Equal(t, idempotency.Degraded, s.post(t.Context(), "k0").Result)
							require.Equal(t, idempotency.Degraded, s.post(t.Context(), "k1").Result)
							require.Equal(t, 1, s.asked())
							time.Sleep(openPause)
						}
						s.OnAcquire = func(ctx context.Context, _ int, _ driver.Claim) (driver.Answer, error) {
							return driver.Answer{}, answer(ctx)
						}
						for range 3 {
							ctx, cancel := end(t.Context())
							s.post(ctx, "attack")
							cancel()
						}
						s.OnAcquire = nil
						require.Equal(t, idempotency.Ran, s.post(t.Context(), "k2").Result)
					}, idempotency.WithFailOpen())
				})
			}
		}
	}
}

// openPause is for how long the store is not asked again.
const openPause = time.Second

// A client that leaves just when the store grants its lease gets no run. The lease is released, and
// the store counts as there, also if it was away before.
func TestFailOpen_aClientThatLeavesJustWhenTheStoreAnswers(t *testing.T) {
	t.Parallel()
	for _, was := range []bool{false, true} {
		t.Run(fmt.Sprint("after an outage: ", was), func(t *testing.T) {
			inOutage(t, func(t *testing.T, s *outage) {
				if was {
					s.OnAcquire = func(ctx context.Context, _ int, _ driver.Claim) (driver.Answer, error) {
						return driver.Answer{}, guardtest.Hang(ctx)
					}
					require.Equal(t, idempotency.Degraded, s.post(t.Context(), "k0").Result)
					time.Sleep(openPause)
				}
				ctx, leave := context.WithCancel(t.Context())
				s.OnAcquire = func(ctx context.Context, _ int, c driver.Claim) (driver.Answer, error) {
					defer leave()
					return s.Inner.TryAcquire(ctx, c)
				}
				before := s.runs
				o := s.post(ctx, "k")
				require.Equal(t, idempotency.Canceled, o.Result)
				require.False(t, guard.Ran(o.Err))
				require.Equal(t, before, s.runs)
				s.OnAcquire = nil
				synctest.Wait() // for the release
				require.Equal(t, idempotency.Ran, s.post(t.Context(), "k").Result)
				require.Equal(t, idempotency.Ran, s.post(t.Context(), "other").Result)
			}, idempotency.WithFailOpen())
		})
	}
}

// A store that has no room for a record at the end of a run is not away.
func TestFailOpen_aStoreThatKeepsNoRecordIsNotAway(t *testing.T) {
	t.Parallel()
	for kind, want := range map[driver.StoreErrorKind]idempotency.Result{
		driver.KindOOM: idempotency.Ran, driver.KindReadOnly: idempotency.Ran, driver.KindConnection: idempotency.Degraded,
	} {
		t.Run(string(kind), func(t *testing.T) {
			inOutage(t, func(t *testing.T, s *outage) {
				s.OnRelease = func(context.Context, int, driver.Claim, driver.After) (bool, error) {
					return false, guardtest.Fail(kind)
				}
				o := s.post(t.Context(), "k1")
				require.Equal(t, idempotency.Ran, o.Result)
				require.ErrorIs(t, o.Err, guard.ErrMarker)
				require.Equal(t, want, s.post(t.Context(), "k2").Result)
				s.OnRelease = nil
			}, idempotency.WithFailOpen())
		})
	}
}

// A store that answers again is used again at once, even while the first run that it has allowed
// is under way.
func TestFailOpen_endsWithTheFirstLease(t *testing.T) {
	t.Parallel()
	inOutage(t, func(t *testing.T, s *outage) {
		s.OnAcquire = func(ctx context.Context, n int, _ driver.Claim) (driver.Answer, error) {
			if n == 1 {
				return driver.Answer{}, guardtest.Hang(ctx)
			}
			return driver.Answer{}, guardtest.ErrUnscripted
		}
		o := s.post(t.Context(), "k1")
		require.Equal(t, idempotency.Degraded, o.Result)
		time.Sleep(2 * time.Second)
		slow := s.start(t.Context(), request{key: "k2", handler: func(context.Context) (string, error) {
			time.Sleep(time.Minute)
			return "answer", nil
		}})
		synctest.Wait()
		o = s.post(t.Context(), "k3")
		require.Equal(t, idempotency.Ran, o.Result)
		<-slow
	}, idempotency.WithFailOpen())
}

// What a server answers, as go-redis and the drivers of PostgreSQL have it.
type (
	redisReply    struct{ error }
	postgresReply struct{ error }
)

func (redisReply) RedisError()         {}
func (postgresReply) SQLState() string { return "53400" }

// failWith returns the error of a store for an error of its own.
func failWith(kind driver.StoreErrorKind, err error) error {
	return &guard.StoreError{Backend: "scripted", Kind: kind, Err: err}
}

// A store that refuses has answered. Nothing runs, and the next call asks it again.
func TestFailOpen_aStoreThatRefusesIsNotAway(t *testing.T) {
	t.Parallel()
	full, cut, hung := guardtest.Fail(driver.KindOOM), guardtest.Fail(driver.KindConnection), guardtest.Fail(driver.KindTimeout)
	type failure struct {
		err  error
		away bool
	}
	failures := map[string]failure{
		"unknown reply of Redis":        {failWith(driver.KindOther, fmt.Errorf("wrapped: %w", redisReply{errUnknown})), false},
		"unknown reply of PostgreSQL":   {failWith(driver.KindOther, fmt.Errorf("wrapped: %w", postgresReply{errUnknown})), false},
		"no node answers":               {failWith(driver.KindQuorum, errors.Join(cut, hung)), true},
		"all nodes are full":            {failWith(driver.KindQuorum, errors.Join(full, full)), false},
		"a node is full, one is away":   {failWith(driver.KindQuorum, errors.Join(cut, full)), false},
		"a node is full, of two sides":  {failWith(driver.KindQuorum, fmt.Errorf("old: %w", failWith(driver.KindQuorum, errors.Join(cut, full)))), false},
		"a node has no rights, in time": {failWith(driver.KindQuorum, errors.Join(hung, guardtest.Fail(driver.KindAuth), hung)), false},
	}
	for kind, away := range map[driver.StoreErrorKind]bool{
		driver.KindOOM: false, driver.KindNotPersisted: false, driver.KindReadOnly: false, driver.KindRestarted: false,
		driver.KindNoReplicas: false, driver.KindAuth: false, driver.KindWrongType: false, driver.KindUnsupported: false,
		driver.KindProtocol: false, driver.KindSettings: false,

		driver.KindOther: true, driver.KindTimeout: true, driver.KindConnection: true, driver.KindPoolExhausted: true,
		driver.KindLimit: true, driver.KindLoading: true, driver.KindScriptBusy: true, driver.KindMoved: true, driver.KindQuorum: true,
		driver.KindClosed: true,
	} {
		failures[string(kind)] = failure{guardtest.Fail(kind), away}
	}
	for name, f := range failures {
		for _, limit := range []time.Duration{20 * time.Millisecond, time.Minute} {
			t.Run(fmt.Sprint(name, ", ", limit), func(t *testing.T) {
				inOutage(t, func(t *testing.T, s *outage) {
					s.OnAcquire = func(context.Context, int, driver.Claim) (driver.Answer, error) { return driver.Answer{}, f.err }
					for range 3 {
						before := s.asked()
						ctx, cancel := context.WithTimeout(t.Context(), limit)
						o := s.post(ctx, "k")
						cancel()
						require.ErrorIs(t, o.Err, guard.ErrStore)
						if f.away {
							require.Equal(t, idempotency.Degraded, o.Result)
							continue
						}
						require.Equal(t, idempotency.Unavailable, o.Result)
						require.False(t, guard.Ran(o.Err))
						require.Greater(t, s.asked(), before)
						require.Zero(t, s.runs)
					}
				}, idempotency.WithFailOpen())
			})
		}
	}
}

var errUnknown = errors.New("ERR a reply that is not known")

// A claim that the store may have granted to a run without a lease keeps others away while that
// run is under way, and is released then. So no run with a lease begins beside it.
func TestFailOpen_keepsOthersAwayWhileItRuns(t *testing.T) {
	t.Parallel()
	for name, answer := range silences {
		if name == "it hangs" {
			continue // then it has not granted the claim
		}
		for mode, opts := range map[string][]idempotency.Option{
			"fail open": {idempotency.WithFailOpen()}, "fail open, waiting": {idempotency.WithFailOpen(), idempotency.WithWait(time.Second)},
			"shadow": {idempotency.WithShadow()},
		} {
			t.Run(name+", "+mode, func(t *testing.T) {
				inOutage(t, func(t *testing.T, s *outage) {
					s.OnAcquire = func(ctx context.Context, n int, c driver.Claim) (driver.Answer, error) {
						if n == 1 {
							return answer(ctx, s.Inner, c)
						}
						return driver.Answer{}, guardtest.ErrUnscripted
					}
					first := s.start(t.Context(), request{key: "k", handler: func(context.Context) (string, error) {
						time.Sleep(20 * time.Second)
						return "answer", nil
					}})
					time.Sleep(5 * time.Second) // the store is asked again
					synctest.Wait()
					require.Equal(t, 1, s.runs)
					o := s.post(t.Context(), "k")
					require.Equal(t, idempotency.InFlight, o.Result)
					<-first
					time.Sleep(5 * time.Second)
					o = s.post(t.Context(), "k")
					require.Equal(t, idempotency.Ran, o.Result, "the claim was released")
				}, opts...)
			})
		}
	}
}
