package guardhttp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// serveSlowly serves h as from two processes. Requests of the first one to Redis take a while, and
// those of the second do not.
func serveSlowly(t *testing.T, h http.HandlerFunc, opts ...guardhttp.Option) (slow, fast *lifeServer) {
	t.Helper()
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
	slow = lifeServe(t, lifeGuard(t, single.New(proxy.Client(t)), guard.WithTTL(time.Minute)), h, opts...)
	fast = lifeServe(t, lifeGuard(t, single.New(server.Client(t)), guard.WithTTL(time.Minute)), h, opts...)
	for _, s := range []*lifeServer{slow, fast} {
		// there are connections
		require.Equal(t, http.StatusOK, s.post(t, "warm-"+s.URL, "b").status)
	}
	// so that the test notices an answer that leaves before the release
	proxy.DelayRequests(15 * time.Millisecond)
	return slow, fast
}

// A client that has the whole answer asks again at once: in Exclusive mode the key is free at that
// time, and in the others the record is there.
func TestModes_aClientWithTheAnswerCanRetryAtOnce(t *testing.T) {
	t.Parallel()
	const rounds = 1
	for _, mode := range []idempotency.Mode{idempotency.Replay, idempotency.Exclusive, idempotency.Reject} {
		for name, write := range lifeWrites {
			t.Run(fmt.Sprintf("mode=%d %s", mode, name), func(t *testing.T) {
				t.Parallel()
				var runs atomic.Int64
				slow, fast := serveSlowly(t, func(w http.ResponseWriter, r *http.Request) {
					runs.Add(1)
					size, _ := strconv.Atoi(r.Header.Get("X-Size"))
					// or net/http keeps the beginning to itself, to look at it
					w.Header().Set("Content-Type", "text/plain")
					if r.Header.Get("X-Declared") == "true" {
						w.Header().Set("Content-Length", strconv.Itoa(size))
					}
					_ = write(w, strings.Repeat("x", size))
				}, idempotency.WithMode(mode))
				for round := range 2 * rounds {
					for _, size := range []int{1, 10, 3 << 10, 100 << 10} {
						key, declared := fmt.Sprint(round, "-of-", size), strconv.FormatBool(round%2 == 0)
						body, headers := strings.Repeat("x", size), []string{"X-Size", strconv.Itoa(size), "X-Declared", declared}
						ran := runs.Load() + 1
						requireRan(t, slow.post(t, key, "b", headers...), http.StatusOK, body)
						// slow on the same connection
						for _, again := range []*lifeServer{fast, slow} {
							a := again.post(t, key, "b", headers...)
							switch mode {
							case idempotency.Exclusive:
								requireRan(t, a, http.StatusOK, body)
								ran++
							case idempotency.Reject:
								requireProblem(t, a, http.StatusConflict, idempotency.Done)
							default:
								requireReplay(t, a, http.StatusOK, body)
							}
						}
						require.Equal(t, ran, runs.Load())
					}
				}
			})
		}
	}
}

func TestTimeout_endsTheHandlersContext(t *testing.T) {
	t.Parallel()
	const timeout = 150 * time.Millisecond
	g := lifeGuard(t, memory.New(), guard.WithTTL(time.Minute))
	for name, c := range map[string]struct {
		status int // that the handler answers with after its time is up, 0 if it does not
		kept   idempotency.Keep
	}{
		"silent": {0, idempotency.KeepNothing},
		// it may say no more than that the time was up
		"refused": {http.StatusNotFound, idempotency.KeepNothing},
		"done":    {http.StatusCreated, idempotency.KeepAnswer},
	} {
		t.Run(name, func(t *testing.T) {
			causes := make(chan error, 1)
			runs := 0
			s := lifeServe(t, g, func(w http.ResponseWriter, r *http.Request) {
				if runs++; runs > 1 {
					return
				}
				select {
				case <-r.Context().Done():
				case <-t.Context().Done():
				}
				causes <- context.Cause(r.Context())
				if c.status != 0 {
					w.WriteHeader(c.status)
				}
			}, idempotency.WithMaxHold(timeout))
			start := time.Now()
			a := s.post(t, name, "b")
			require.GreaterOrEqual(t, time.Since(start), timeout)
			require.ErrorIs(t, lifeReceive(t, causes, "a cause"), context.DeadlineExceeded)
			o := s.log.await(t, 1)[0]
			require.Equal(t, idempotency.Ran, o.Result)
			require.Equal(t, c.kept, o.Kept)
			if c.status == 0 {
				require.Equal(t, 1, requireProblem(t, a, http.StatusServiceUnavailable, "given_up"))
				require.Equal(t, http.StatusServiceUnavailable, o.Status)
			} else {
				requireRan(t, a, c.status, "")
				require.Equal(t, c.status, o.Status)
			}
			again := s.post(t, name, "b")
			if c.kept == idempotency.KeepAnswer {
				requireReplay(t, again, c.status, "")
				require.Equal(t, 1, runs)
				return
			}
			requireRan(t, again, http.StatusOK, "")
			require.Equal(t, 2, runs)
		})
	}
}

// The status of an answer that has begun says how the work went: a retry must not run it again.
func TestTimeout_anAnswerThatHasBegunIsKept(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusCreated, http.StatusUnprocessableEntity} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			t.Parallel()
			s := lifeServe(t, lifeGuard(t, memory.New()), func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(status)
				<-r.Context().Done()
				_, _ = io.WriteString(w, "all of it")
			}, idempotency.WithMaxHold(50*time.Millisecond))
			requireRan(t, s.post(t, "k", "b"), status, "all of it")
			requireReplay(t, s.post(t, "k", "b"), status, "all of it")
		})
	}
}

// The package idempotent tests each choice in each mode.
func TestSetKeep_decidesOverThePolicy(t *testing.T) {
	t.Parallel()
	require.False(t, idempotency.SetKeep(t.Context(), idempotency.KeepAnswer), "there is no run")
	s := lifeServe(t, lifeGuard(t, memory.New()), func(w http.ResponseWriter, r *http.Request) {
		require.True(t, idempotency.SetKeep(r.Context(), idempotency.KeepAnswer))
		w.WriteHeader(http.StatusInternalServerError)
	})
	requireRan(t, s.post(t, "k", "b"), http.StatusInternalServerError, "")
	requireReplay(t, s.post(t, "k", "b"), http.StatusInternalServerError, "")
}

func TestKey_andFenceAreInTheHandlersContext(t *testing.T) {
	t.Parallel()
	require.Empty(t, idempotency.Key(t.Context()))
	type seen struct {
		key   string
		fence uint64
		valid bool
		scope string
	}
	runs := make(chan seen, 10)
	s := lifeServe(t, lifeGuard(t, memory.New()), func(_ http.ResponseWriter, r *http.Request) {
		lease, ok := guard.FromContext(r.Context())
		runs <- seen{idempotency.Key(r.Context()), guard.Fence(r.Context()), ok && lease.Valid(), r.Header.Get("X-Tenant")}
	}, idempotency.WithMode(idempotency.Exclusive))
	last := uint64(0)
	for run := range 3 {
		s.post(t, `"a key"`, "b")
		got := lifeReceive(t, runs, "a run")
		require.Equal(t, seen{"a key", got.fence, true, "acme"}, got)
		require.Greater(t, got.fence, last, "fences grow")
		last = got.fence
		require.Equal(t, got.fence, s.log.await(t, run+1)[run].Fence)
	}
}
