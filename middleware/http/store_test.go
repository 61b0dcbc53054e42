package guardhttp_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// Row 3, and what is asked otherwise.
func TestStore_isAskedNoMoreThanItHasTo(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	h, runs := counted(nil)
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

// measureLife returns what the process holds.
func measureLife() (heap int64, goroutines int) {
	runtime.GC()
	runtime.GC() // what pools hold goes with the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc), runtime.NumGoroutine()
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
	h, _ := counted(nil)
	idempotent, err := guardhttp.New(lifeGuard(t, lifeBusy{memory.New()}), guardhttp.IdempotencyKey, guardhttp.WithScope(tenant),
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
