package guardhttp_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// countWaits has waits count the requests that begin to wait.
func countWaits(waits *atomic.Int64) guardhttp.Option {
	return idempotency.WithLease(guard.WithHook(guard.Hook{Wait: func(context.Context, guard.WaitEvent) { waits.Add(1) }}))
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
