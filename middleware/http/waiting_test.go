package guardhttp_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// countWaits has waits count the requests that begin to wait.
func countWaits(waits *atomic.Int64) guardhttp.Option {
	return idempotency.WithLease(guard.WithHook(guard.Hook{Wait: func(context.Context, guard.Event) { waits.Add(1) }}))
}

// awaitWaits returns when n requests have begun to wait.
func awaitWaits(t *testing.T, waits *atomic.Int64, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return waits.Load() >= int64(n) }, lifeSoon, lifePoll, "%d wait", n)
	require.EqualValues(t, n, waits.Load())
}

// Row 8 in one process.
func TestWaiting_allGetTheFirstAnswer(t *testing.T) {
	t.Parallel()
	onEachLifeStore(t, func(t *testing.T, store guard.Locker) {
		const requests = 100
		var waits atomic.Int64
		gate := newLifeGate(t)
		h, runs := counted(http.StatusCreated, gate.pass)
		s := lifeServe(t, lifeGuard(t, store), h, idempotency.WithWait(time.Minute), countWaits(&waits))
		var answers []<-chan lifeAnswer
		for range requests {
			answers = append(answers, s.start(t.Context(), "k", "b"))
		}
		awaitWaits(t, &waits, requests-1)
		gate.open()
		marked := 0
		for _, c := range answers {
			a := lifeReceive(t, c, "an answer")
			require.NoError(t, a.err)
			require.Equal(t, http.StatusCreated, a.status)
			require.Equal(t, "run 1", a.body)
			require.Equal(t, "/things/1", a.header.Get("Location"))
			if a.replayed() {
				marked++
			}
		}
		require.Equal(t, requests-1, marked)
		require.EqualValues(t, 1, runs.Load())
		s.log.awaitResult(t, idempotency.Replayed, requests-1)
	})
}

// Row 9.
func TestWaiting_endsAfterItsTime(t *testing.T) {
	t.Parallel()
	onEachLifeStore(t, func(t *testing.T, store guard.Locker) {
		const wait = 150 * time.Millisecond
		gate := newLifeGate(t)
		h, runs := counted(http.StatusCreated, gate.pass)
		s := lifeServe(t, lifeGuard(t, store), h, idempotency.WithWait(wait))
		first := s.start(t.Context(), "k", "b")
		gate.await(t)
		lifePrompt(t, wait+100*time.Millisecond, "the end of the wait", func() time.Time {
			start := time.Now()
			requireProblem(t, s.post(t, "k", "b"), http.StatusConflict, idempotency.InFlight)
			require.GreaterOrEqual(t, time.Since(start), wait)
			return start
		})
		gate.open()
		requireRan(t, lifeReceive(t, first, "an answer"), http.StatusCreated, "run 1")
		requireReplay(t, s.post(t, "k", "b"), http.StatusCreated, "run 1")
		require.EqualValues(t, 1, runs.Load())
	})
}

// Row 10, also with a body that the handler would read, as net/http notices only behind it that a
// client has gone.
func TestWaiting_endsWhenTheClientLeaves(t *testing.T) {
	t.Parallel()
	onEachLifeStore(t, func(t *testing.T, store guard.Locker) {
		g := lifeGuard(t, store)
		for name, c := range map[string]struct {
			body string
			opts []guardhttp.Option
		}{
			"small": {"b", nil}, "large": {strings.Repeat("b", 700<<10), nil}, "none": {"", nil},
			"not fingerprinted": {"b", []guardhttp.Option{guardhttp.WithFingerprint(nil)}},
			"exclusive":         {"b", []guardhttp.Option{idempotency.WithMode(idempotency.Exclusive)}},
		} {
			t.Run(name, func(t *testing.T) {
				var waits atomic.Int64
				gate := newLifeGate(t)
				h, runs := counted(http.StatusCreated, gate.pass)
				key := strings.ReplaceAll(name, " ", "-")
				s := lifeServe(t, g, h, append(c.opts, idempotency.WithWait(time.Hour), countWaits(&waits))...)
				first := s.start(t.Context(), key, c.body)
				owner := gate.await(t)
				left := 0
				lifePrompt(t, 200*time.Millisecond, "leaving", func() time.Time {
					left++
					ctx, leave := context.WithCancel(t.Context())
					defer leave()
					waiting := s.start(ctx, key, c.body)
					awaitWaits(t, &waits, left)
					start := time.Now()
					leave()
					o := s.log.await(t, left)[left-1]
					require.Equal(t, idempotency.Canceled, o.Result)
					require.ErrorIs(t, o.Err, context.Canceled)
					require.False(t, o.Aborted)
					require.Error(t, lifeReceive(t, waiting, "the end of a request").err)
					return start
				})

				require.NoError(t, owner.Err(), "the owner is not disturbed")
				gate.open()
				requireRan(t, lifeReceive(t, first, "an answer"), http.StatusCreated, "run 1")
				require.EqualValues(t, 1, runs.Load())
				require.Equal(t, idempotency.Ran, s.log.await(t, left+1)[left].Result)
			})
		}
	})
}

func TestWaiting_theNextOneRunsAfterAFailure(t *testing.T) {
	t.Parallel()
	onEachLifeStore(t, func(t *testing.T, store guard.Locker) {
		g := lifeGuard(t, store)
		for name, fail := range map[string]func(w http.ResponseWriter){
			"500":   func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) },
			"panic": func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
		} {
			t.Run(name, func(t *testing.T) {
				const waiting = 3
				var waits, runs atomic.Int64
				gate := newLifeGate(t)
				s := lifeServe(t, g, func(w http.ResponseWriter, r *http.Request) {
					if runs.Add(1) == 1 {
						gate.pass(r.Context())
						fail(w)
						return
					}
					w.WriteHeader(http.StatusCreated)
					fmt.Fprint(w, "run ", runs.Load())
				}, idempotency.WithWait(time.Minute), countWaits(&waits))
				first := s.start(t.Context(), name, "b")
				gate.await(t)
				var answers []<-chan lifeAnswer
				for range waiting {
					answers = append(answers, s.start(t.Context(), name, "b"))
				}
				awaitWaits(t, &waits, waiting)
				gate.open()
				require.NotEqual(t, http.StatusCreated, lifeReceive(t, first, "an answer").status)
				marked := 0
				for _, c := range answers {
					a := lifeReceive(t, c, "an answer")
					require.NoError(t, a.err)
					require.Equal(t, http.StatusCreated, a.status)
					require.Equal(t, "run 2", a.body)
					if a.replayed() {
						marked++
					}
				}
				require.Equal(t, waiting-1, marked)
				require.EqualValues(t, 2, runs.Load())
			})
		}
	})
}

// The record of a request that had to wait is forgotten like any other.
func TestWaiting_retentionCountsForTheNextOneToo(t *testing.T) {
	t.Parallel()
	var runs, waits atomic.Int64
	gate := newLifeGate(t)
	s := lifeServe(t, lifeGuard(t, memory.New()), func(w http.ResponseWriter, r *http.Request) {
		run := runs.Add(1)
		if run == 1 {
			gate.pass(r.Context())
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		fmt.Fprint(w, "run ", run)
	}, idempotency.WithWait(time.Minute), idempotency.WithOnce(400*time.Millisecond), countWaits(&waits))
	first := s.start(t.Context(), "k", "b")
	gate.await(t)
	second := s.start(t.Context(), "k", "b")
	awaitWaits(t, &waits, 1)
	gate.open()
	requireRan(t, lifeReceive(t, first, "an answer"), http.StatusInternalServerError, "")
	requireRan(t, lifeReceive(t, second, "an answer"), http.StatusOK, "run 2")
	a := lifeAnswer{}
	require.Eventually(t, func() bool {
		a = lifeSend(t.Context(), s.client, s.URL, "k", "b")
		return !a.replayed()
	}, lifeSoon, lifePoll)
	requireRan(t, a, http.StatusOK, "run 3")
}

func TestWaiting_thoseBeyondTheBoundsAreRefusedAtOnce(t *testing.T) {
	t.Parallel()
	var waits atomic.Int64
	gate := newLifeGate(t)
	h, _ := counted(http.StatusCreated, gate.pass)
	s := lifeServe(t, lifeGuard(t, memory.New()), h, idempotency.WithWait(time.Hour), idempotency.WithMaxWaiters(3, 2), idempotency.WithMaxScopeWaiters(3),
		countWaits(&waits))
	var answers []<-chan lifeAnswer
	for _, key := range []string{"k1", "k2"} {
		answers = append(answers, s.start(t.Context(), key, "b"))
		gate.await(t)
	}
	refused := func(key string) {
		t.Helper()
		start := time.Now()
		require.Equal(t, 1, requireProblem(t, s.post(t, key, "b"), http.StatusConflict, idempotency.InFlight))
		require.Less(t, time.Since(start), lifeSoon, "at once")
	}
	for i := range 2 {
		answers = append(answers, s.start(t.Context(), "k1", "b"))
		awaitWaits(t, &waits, i+1)
	}
	refused("k1")
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	leaving := s.start(ctx, "k2", "b")
	awaitWaits(t, &waits, 3)
	refused("k1")
	refused("k2")

	leave() // which makes room for another one, of k2 only
	require.Error(t, lifeReceive(t, leaving, "the end of a request").err)
	s.log.awaitResult(t, idempotency.Canceled, 1)
	refused("k1")
	answers = append(answers, s.start(t.Context(), "k2", "b"))
	awaitWaits(t, &waits, 4)
	refused("k2")

	gate.open()
	for _, c := range answers {
		require.Equal(t, http.StatusCreated, lifeReceive(t, c, "an answer").status)
	}
	require.EqualValues(t, 4, waits.Load(), "those that were refused had not waited")
}

// A client cannot use up the places of others, whatever its keys. What each row names are the
// requests of one client that wait, and how many of them are let in.
func TestWaiting_aScopeLeavesPlacesToOthers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		opts       []guardhttp.Option
		keys, each int // of the client
		wait       int
	}{
		"by default":      {nil, 4, 256, 256},
		"small bounds":    {[]guardhttp.Option{idempotency.WithMaxWaiters(8, 2)}, 4, 2, 2},
		"one of each key": {[]guardhttp.Option{idempotency.WithMaxWaiters(16, 1)}, 16, 1, 4},
		"set":             {[]guardhttp.Option{idempotency.WithMaxWaiters(8, 2), idempotency.WithMaxScopeWaiters(7)}, 4, 2, 7},
		"less than a key": {[]guardhttp.Option{idempotency.WithMaxScopeWaiters(1)}, 2, 2, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g, err := guard.New(memory.New(), guard.WithNamespace("test"))
				require.NoError(t, err)
				end := make(chan struct{})
				h, seen := lifeIdempotent(t, g, func(http.ResponseWriter, *http.Request) { <-end },
					append([]guardhttp.Option{idempotency.WithWait(time.Minute)}, c.opts...)...)
				var requests sync.WaitGroup
				send := func(tenant, key string, n int) {
					for range n {
						requests.Go(func() {
							r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader("b"))
							r.Header.Set("X-Tenant", tenant)
							r.Header.Set("Idempotency-Key", key)
							h.ServeHTTP(httptest.NewRecorder(), r)
						})
					}
					synctest.Wait()
				}
				refused := func() int { return len(seen.seen()) }
				for key := range c.keys {
					send("greedy", fmt.Sprint(key), 1+c.each)
				}
				require.Equal(t, c.keys*c.each-c.wait, refused(), "requests of the greedy client")
				before := refused()
				send("other", "0", 2)
				require.Equal(t, before, refused(), "one runs, and its duplicate waits")
				close(end)
				requests.Wait()
				require.NoError(t, g.Close(context.Background()))
			})
		})
	}
}

// Places are released, however the wait ends.
func TestWaiting_placesAreReleased(t *testing.T) {
	t.Parallel()
	onEachLifeStore(t, func(t *testing.T, store guard.Locker) {
		var waits, runs atomic.Int64
		gates := []*lifeGate{newLifeGate(t), newLifeGate(t), newLifeGate(t), newLifeGate(t)}
		s := lifeServe(t, lifeGuard(t, store), func(w http.ResponseWriter, r *http.Request) {
			run := int(runs.Add(1)) - 1
			if run < len(gates) {
				gates[run].pass(r.Context())
			}
			if run == 1 {
				panic(http.ErrAbortHandler)
			}
			w.WriteHeader(http.StatusInternalServerError) // so that the next one runs
		}, idempotency.WithWait(time.Minute), idempotency.WithMaxWaiters(1, 1), countWaits(&waits))
		before := s.start(t.Context(), "k", "b")
		for run, gate := range gates {
			gate.await(t)
			// The request that runs had waited, and no longer counts as a waiter.
			next := s.start(t.Context(), "k", "b")
			awaitWaits(t, &waits, run+1)
			requireProblem(t, s.post(t, "k", "b"), http.StatusConflict, idempotency.InFlight)
			gate.open()
			a := lifeReceive(t, before, "an answer")
			require.Equal(t, run == 1, a.err != nil)
			before = next
		}
		require.Equal(t, http.StatusInternalServerError, lifeReceive(t, before, "an answer").status)
	})
}

// The request's own deadline is the server's: there must be an answer.
func TestWaiting_endsAtTheRequestsDeadline(t *testing.T) {
	t.Parallel()
	onEachLifeStore(t, func(t *testing.T, store guard.Locker) {
		gate := newLifeGate(t)
		h, runs := counted(http.StatusCreated, gate.pass)
		idempotent, seen := lifeIdempotent(t, lifeGuard(t, store), h, idempotency.WithWait(time.Hour))
		s := lifeListen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Hurry") != "" {
				ctx, cancel := context.WithTimeout(r.Context(), 100*time.Millisecond)
				defer cancel()
				r = r.WithContext(ctx)
			}
			idempotent.ServeHTTP(w, r)
		}))
		first := s.start(t.Context(), "k", "b")
		gate.await(t)
		require.Equal(t, 1, requireProblem(t, s.post(t, "k", "b", "X-Hurry", "yes"), http.StatusServiceUnavailable, idempotency.Canceled))
		o := seen.await(t, 1)[0]
		require.Equal(t, idempotency.Canceled, o.Result)
		require.ErrorIs(t, o.Err, context.DeadlineExceeded)
		gate.open()
		requireRan(t, lifeReceive(t, first, "an answer"), http.StatusCreated, "run 1")
		require.EqualValues(t, 1, runs.Load())
	})
}

func TestWaiting_endsWhenTheGuardIsClosed(t *testing.T) {
	t.Parallel()
	onEachLifeStore(t, func(t *testing.T, store guard.Locker) {
		var waits atomic.Int64
		gate := newLifeGate(t)
		h, _ := counted(http.StatusCreated, gate.pass)
		g := lifeGuard(t, store)
		s := lifeServe(t, g, h, idempotency.WithWait(time.Hour), countWaits(&waits))
		first := s.start(t.Context(), "k", "b")
		gate.await(t)
		second := s.start(t.Context(), "k", "b")
		awaitWaits(t, &waits, 1)
		closed := make(chan error, 1)
		go func() { closed <- g.Close(t.Context()) }()
		require.Equal(t, 1, requireProblem(t, lifeReceive(t, second, "an answer"), http.StatusServiceUnavailable, idempotency.Unavailable))
		require.Empty(t, closed, "the first one goes on")
		gate.open()
		requireRan(t, lifeReceive(t, first, "an answer"), http.StatusCreated, "run 1")
		require.NoError(t, lifeReceive(t, closed, "an end"))
	})
}
