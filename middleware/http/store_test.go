package guardhttp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// Row 3, and what is asked otherwise.
func TestStore_isAskedNoMoreThanItHasTo(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	h, runs := counted(http.StatusCreated, nil)
	s := lifeServe(t, lifeGuard(t, single.New(server.Client(t)), guard.WithTTL(time.Minute), guard.WithHook(guard.Hook{})), h, idempotency.WithOptionalKey())
	s.post(t, "warm", "b")
	server.ResetStats(t)

	for run := range 3 {
		requireRan(t, s.post(t, "", "b"), http.StatusCreated, fmt.Sprint("run ", run+2))
	}
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodOptions} {
		r, err := http.NewRequestWithContext(t.Context(), method, s.URL, nil)
		require.NoError(t, err)
		r.Header.Set("Idempotency-Key", "warm")
		response, err := s.client.Do(r)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusCreated, response.StatusCode)
	}
	require.EqualValues(t, 7, runs.Load())
	for _, o := range s.log.await(t, 7)[1:] {
		require.Equal(t, idempotency.Untouched, o.Result)
	}
	require.Equal(t, http.StatusBadRequest, s.post(t, "no\tkey", "b").status)
	require.Equal(t, http.StatusInternalServerError, s.post(t, "k", "b", "X-Tenant", "").status)
	require.Equal(t, http.StatusRequestEntityTooLarge, s.post(t, "k", strings.Repeat("b", (1<<20)+1)).status)
	require.Empty(t, server.Calls(t), "the store was not asked")

	requireRan(t, s.post(t, "k", "b"), http.StatusCreated, "run 8")
	require.EqualValues(t, 2, server.Calls(t)["evalsha"], "a run takes the key and leaves the record")
	requireReplay(t, s.post(t, "k", "b"), http.StatusCreated, "run 8")
	require.EqualValues(t, 3, server.Calls(t)["evalsha"], "a replay finds it")
}

// lifeLeaseKey returns the name of the one lease that is in Redis.
func lifeLeaseKey(t *testing.T, rdb *redis.Client) string {
	t.Helper()
	dump := lifeDump(t, rdb)
	require.Len(t, dump, 1)
	for key := range dump {
		return key
	}
	return ""
}

// Row 14.
func TestStore_aLostLeaseEndsTheRun(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(server *redistest.Server, rdb *redis.Client, lease string) error{
		"deleted": func(_ *redistest.Server, rdb *redis.Client, lease string) error {
			return rdb.Del(context.Background(), lease).Err()
		},
		"flushed": func(_ *redistest.Server, rdb *redis.Client, _ string) error {
			return rdb.FlushAll(context.Background()).Err()
		},
		"taken over": func(_ *redistest.Server, rdb *redis.Client, lease string) error {
			return rdb.Set(context.Background(), lease, "another's", time.Minute).Err()
		},
		"frozen": func(server *redistest.Server, _ *redis.Client, _ string) error { server.Freeze(); return nil },
		"dead":   func(server *redistest.Server, _ *redis.Client, _ string) error { server.Kill(); return nil },
	} {
		for _, answers := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s answers=%v", name, answers), func(t *testing.T) {
				t.Parallel()
				server := redistest.Start(t)
				rdb := server.Client(t)
				begun, causes := make(chan struct{}, 2), make(chan error, 2)
				s := lifeServe(t, lifeGuard(t, single.New(rdb), guard.WithTTL(lifeShortTTL)), func(w http.ResponseWriter, r *http.Request) {
					begun <- struct{}{}
					if r.Header.Get("X-Quick") == "" {
						select {
						case <-r.Context().Done():
							causes <- context.Cause(r.Context())
						case <-t.Context().Done():
						}
					}
					if answers {
						w.WriteHeader(http.StatusCreated)
						fmt.Fprint(w, "written all the same")
					}
				})
				first := s.start(t.Context(), "k", "b")
				lifeReceive(t, begun, "a run")
				require.NoError(t, fault(server, rdb, lifeLeaseKey(t, rdb)))
				require.ErrorIs(t, lifeReceive(t, causes, "the end of a context"), guard.ErrLost)
				a := lifeReceive(t, first, "an answer")
				o := s.log.await(t, 1)[0]
				require.Equal(t, idempotency.Ran, o.Result)
				require.ErrorIs(t, o.Err, guard.ErrLost)
				require.Equal(t, idempotency.KeepNothing, o.Kept)
				if answers {
					requireRan(t, a, http.StatusCreated, "written all the same")
				} else {
					require.Equal(t, 1, requireProblem(t, a, http.StatusServiceUnavailable, "given_up"))
					require.Equal(t, http.StatusServiceUnavailable, o.Status)
				}

				switch name {
				case "frozen":
					server.Thaw()
				case "dead":
					server.Restart()
				case "taken over":
					require.Equal(t, "another's", rdb.Get(t.Context(), lifeLeaseKey(t, rdb)).Val(), "the new owner's is left as it is")
					requireProblem(t, s.post(t, "k", "b", "X-Quick", "yes"), http.StatusConflict, idempotency.InFlight)
					return
				}
				require.Empty(t, lifeDump(t, rdb), "nothing was stored")
				a = s.post(t, "k", "b", "X-Quick", "yes")
				require.False(t, a.replayed())
				lifeReceive(t, begun, "another run")
			})
		}
	}
}

// Row 30.
func TestStore_downRefusesOrRunsWithoutALease(t *testing.T) {
	t.Parallel()
	for name, outage := range lifeOutages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			g := lifeGuard(t, single.New(server.Client(t)), guard.WithTTL(lifeShortTTL/2))
			body := strings.Repeat("all of it ", 1000)
			closed, closedRuns := counted(http.StatusCreated, nil)
			open := func(w http.ResponseWriter, r *http.Request) {
				all, err := io.ReadAll(r.Body)
				if err != nil || string(all) != body || guardhttp.Key(r.Context()) != "k" || guard.Fence(r.Context()) != 0 {
					w.WriteHeader(http.StatusTeapot)
				}
			}
			refusing, running := lifeServe(t, g, closed), lifeServe(t, g, open, idempotency.WithFailOpen())
			outage.begin(server)
			for run := range 2 {
				require.Equal(t, 1, requireProblem(t, refusing.post(t, "k", body), http.StatusServiceUnavailable, idempotency.Unavailable))
				o := refusing.log.await(t, run+1)[run]
				require.Equal(t, idempotency.Unavailable, o.Result)
				require.ErrorIs(t, o.Err, guard.ErrStore)
				require.Equal(t, http.StatusServiceUnavailable, o.Status)

				requireRan(t, running.post(t, "k", body), http.StatusOK, "")
				o = running.log.await(t, run+1)[run]
				require.Equal(t, idempotency.Degraded, o.Result)
				require.ErrorIs(t, o.Err, guard.ErrStore)
				require.Equal(t, idempotency.KeepNothing, o.Kept)
				require.Equal(t, http.StatusOK, o.Status)
				require.Zero(t, o.Fence)
			}
			require.Zero(t, closedRuns.Load())
			outage.end(server)
			a := lifeAnswer{}
			require.Eventually(t, func() bool {
				// For a moment, the client may use dead connections. A server that continues may
				// grant a claim whose request has gone, until the claim is released.
				a = lifeSend(t.Context(), refusing.client, refusing.URL, "k", body)
				return a.status != http.StatusServiceUnavailable && a.status != http.StatusConflict
			}, lifeSoon, lifePoll)
			requireRan(t, a, http.StatusCreated, "run 1")
			requireReplay(t, refusing.post(t, "k", body), http.StatusCreated, "run 1")
		})
	}
}

// Row 30 for a Guard that is closed, which is no failure of the store: the process is about to
// end.
func TestStore_aClosedGuardRefuses(t *testing.T) {
	t.Parallel()
	onEachLifeStore(t, func(t *testing.T, store guard.Locker) {
		for name, opts := range map[string][]guardhttp.Option{"closed": nil, "open": {idempotency.WithFailOpen()}} {
			t.Run(name, func(t *testing.T) {
				h, runs := counted(http.StatusCreated, nil)
				g := lifeGuard(t, store)
				s := lifeServe(t, g, h, opts...)
				require.NoError(t, g.Close(t.Context()))
				require.Equal(t, 1, requireProblem(t, s.post(t, "k", "b"), http.StatusServiceUnavailable, idempotency.Unavailable))
				require.ErrorIs(t, s.log.await(t, 1)[0].Err, guard.ErrClosed)
				require.Zero(t, runs.Load())
			})
		}
	})
}

// A Guard that is closed while a handler runs, and does not wait for it.
func TestStore_aGuardThatRevokesItsLeaseEndsTheRun(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	begun, causes := make(chan struct{}, 1), make(chan error, 1)
	g := lifeGuard(t, single.New(rdb), guard.WithTTL(time.Minute))
	s := lifeServe(t, g, func(_ http.ResponseWriter, r *http.Request) {
		begun <- struct{}{}
		select {
		case <-r.Context().Done():
			causes <- context.Cause(r.Context())
		case <-t.Context().Done():
		}
	})
	first := s.start(t.Context(), "k", "b")
	lifeReceive(t, begun, "a run")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, g.Close(ended), context.Canceled)
	require.ErrorIs(t, lifeReceive(t, causes, "the end of a context"), guard.ErrClosed)
	requireProblem(t, lifeReceive(t, first, "an answer"), http.StatusServiceUnavailable, "given_up")
	o := s.log.await(t, 1)[0]
	require.ErrorIs(t, o.Err, guard.ErrClosed)
	require.Equal(t, idempotency.KeepNothing, o.Kept)
	require.Empty(t, lifeDump(t, rdb), "the key is free")
}

// Row 30 in mid-run: the work is done, and its client gets the answer.
func TestStore_thatDiesInMidRunTakesNoAnswerAway(t *testing.T) {
	t.Parallel()
	for name, outage := range lifeOutages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			gate := newLifeGate(t)
			body := strings.Repeat("0123456789", 10<<10)
			ttl := map[string]time.Duration{"dead": lifeShortTTL, "frozen": time.Minute}[name]
			s := lifeServe(t, lifeGuard(t, single.New(server.Client(t)), guard.WithTTL(ttl)), func(w http.ResponseWriter, r *http.Request) {
				gate.pass(r.Context())
				w.Header().Set("Content-Length", fmt.Sprint(len(body)))
				w.WriteHeader(http.StatusCreated)
				_, _ = io.WriteString(w, body)
			})
			first := s.start(t.Context(), "k", "b")
			gate.await(t)
			outage.begin(server)
			gate.open()
			if name == "frozen" { // the end of the run waits for as long as the lease lasts
				time.Sleep(3 * time.Second)
				outage.end(server)
			}
			requireRan(t, lifeReceive(t, first, "an answer"), http.StatusCreated, body)
			o := s.log.await(t, 1)[0]
			require.Equal(t, idempotency.Ran, o.Result)
			require.Equal(t, http.StatusCreated, o.Status)
			if name == "frozen" {
				require.NoError(t, o.Err)
				requireReplay(t, lifeSend(t.Context(), s.client, s.URL, "k", "b"), http.StatusCreated, body)
				return
			}
			require.ErrorIs(t, o.Err, guard.ErrMarker)
			require.Equal(t, idempotency.KeepNothing, o.Kept, "as far as is known")
			outage.end(server) // the store has forgotten all
		})
	}
}

func TestStore_aLostReplyLosesNoRecord(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
	drop := false
	h, runs := counted(http.StatusCreated, func(context.Context) {
		if drop {
			proxy.DropReplyTo("evalsha", 1) // that to the release
		}
	})
	s := lifeServe(t, lifeGuard(t, single.New(proxy.Client(t)), guard.WithTTL(time.Minute)), h)
	s.post(t, "warm", "b")
	drop = true
	requireRan(t, s.post(t, "k", "b"), http.StatusCreated, "run 2")
	drop = false
	o := s.log.await(t, 2)[1]
	require.NoError(t, o.Err)
	require.Equal(t, idempotency.KeepAnswer, o.Kept)
	proxy.DropReplyTo("evalsha", 1) // that to the claim
	requireReplay(t, s.post(t, "k", "b"), http.StatusCreated, "run 2")
	proxy.DropReplyTo("evalsha", 1)
	requireRan(t, s.post(t, "k2", "b"), http.StatusCreated, "run 3")
	require.EqualValues(t, 3, runs.Load(), "a claim whose reply was lost is recognised")
}

// A Redis that is full takes no new keys, and yet the answer of a run whose lease it has.
func TestStore_anAnswerIsKeptAlthoughTheServerIsFull(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	h, runs := counted(http.StatusCreated, func(ctx context.Context) { streamsMust(rdb.ConfigSet(ctx, "maxmemory", "1").Err()) })
	large := strings.Repeat("x", 500_000)
	s := lifeServe(t, lifeGuard(t, single.New(server.Client(t))), func(w http.ResponseWriter, r *http.Request) {
		h(w, r)
		_, _ = io.WriteString(w, large)
	})
	requireRan(t, s.post(t, "k", "b"), http.StatusCreated, "run 1"+large)
	requireReplay(t, s.post(t, "k", "b"), http.StatusCreated, "run 1"+large)
	requireProblem(t, s.post(t, "k", "another"), http.StatusUnprocessableEntity, idempotency.Mismatch)
	requireProblem(t, s.post(t, "k2", "b"), http.StatusServiceUnavailable, idempotency.Unavailable)
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "0").Err())
	requireReplay(t, s.post(t, "k", "b"), http.StatusCreated, "run 1"+large)
	require.EqualValues(t, 1, runs.Load())
}

// measureLife returns what the process holds.
func measureLife() (heap int64, goroutines int) {
	runtime.GC()
	runtime.GC() // what pools hold goes with the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc), runtime.NumGoroutine()
}

// Row 40. It does not run in parallel, as it measures the process.
// It measures the heap, so it does not run beside others.
func TestLong_keysThatExpireLeaveNothing(t *testing.T) {
	leftout.IfShort(t)
	const (
		keys      = 10_000
		clients   = 8
		answer    = 4 << 10
		retention = 100 * time.Millisecond
	)
	body := strings.Repeat("x", answer)
	g := lifeGuard(t, memory.New())
	idempotent, err := guardhttp.New(g, guardhttp.IdempotencyKey, guardhttp.WithScope(lifeTenant),
		idempotency.WithOnce(retention), idempotency.WithWait(time.Second))
	require.NoError(t, err)
	s := lifeListen(t, idempotent(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) })))
	use := func(from, to int) {
		var all sync.WaitGroup
		for c := range clients {
			all.Go(func() {
				for i := from + c; i < to; i += clients {
					a := lifeSend(t.Context(), s.client, s.URL, fmt.Sprint("key-", i), "b")
					if a.err != nil || a.status != http.StatusOK || len(a.body) != answer {
						t.Errorf("key %d: %d %v", i, a.status, a.err)
						return
					}
				}
			})
		}
		all.Wait()
	}
	use(0, 100) // connections and pools
	heap, goroutines := measureLife()
	use(100, keys)
	require.Eventually(t, func() bool { // the retention ends, and the next request finds that out
		lifeSend(t.Context(), s.client, s.URL, "last", "b")
		h, n := measureLife()
		return h < heap+keys*answer/10 && n <= goroutines+10
	}, lifeSoon, 50*time.Millisecond, "%d keys with answers of %d bytes have come and gone", keys, answer)
}

// lifeBusy is a store in which every key is busy.
type lifeBusy struct{ guard.Locker }

func (lifeBusy) TryAcquire(context.Context, driver.Claim) (driver.Answer, error) {
	return driver.Answer{State: driver.Busy, Left: time.Minute}, nil
}

// Row 40 for the keys that were waited for. It does not run in parallel, as it measures the
// process.
func TestStore_keysThatWereWaitedForLeaveNothing(t *testing.T) {
	const keys, clients = 10_000, 16
	var refused atomic.Int64
	h, _ := counted(http.StatusCreated, nil)
	idempotent, err := guardhttp.New(lifeGuard(t, lifeBusy{memory.New()}), guardhttp.IdempotencyKey, guardhttp.WithScope(lifeTenant),
		idempotency.WithWait(time.Millisecond))
	require.NoError(t, err)
	endpoint := idempotent(h)
	use := func(from, to int) {
		var all sync.WaitGroup
		for c := range clients {
			all.Go(func() {
				for i := from + c; i < to; i += clients {
					r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("b"))
					r.Header.Set("X-Tenant", "acme")
					r.Header.Set("Idempotency-Key", fmt.Sprint("key-", i))
					w := httptest.NewRecorder()
					if endpoint.ServeHTTP(w, r); w.Code == http.StatusConflict {
						refused.Add(1)
					} else if w.Code != http.StatusServiceUnavailable { // the machine held it up
						t.Errorf("key %d: %d", i, w.Code)
						return
					}
				}
			})
		}
		all.Wait()
	}
	use(0, clients)
	heap, goroutines := measureLife()
	use(clients, keys)
	require.Eventually(t, func() bool {
		h, n := measureLife()
		return h < heap+50*keys && n <= goroutines+10 // a key in the store has 48 bytes
	}, lifeSoon, 50*time.Millisecond)
	require.Greater(t, refused.Load(), int64(keys*9/10), "these were waited for")
	runtime.KeepAlive(endpoint)
}
