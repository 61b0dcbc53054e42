package guardhttp_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// recordsPost sends a request with a key of a tenant, and returns the answer.
func recordsPost(h http.Handler, tenant, key string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/", strings.NewReader("b"))
	r.Header.Set("X-Tenant", tenant)
	r.Header.Set("Idempotency-Key", key)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// recordsProcesses returns the handlers of several processes on one store. A request for a failure
// gets 500.
func recordsProcesses(t *testing.T, n int, store func() guard.Locker, opts ...guardhttp.Option) []http.Handler {
	t.Helper()
	processes := make([]http.Handler, n)
	for i := range processes {
		g, err := guard.New(store(), guard.WithNamespace("test"))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
		processes[i], _ = lifeIdempotent(t, g, func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.Header.Get("Idempotency-Key"), "fails") {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			w.WriteHeader(http.StatusCreated)
		}, opts...)
	}
	return processes
}

// A scope never has more records than it may, whatever the process. What it may have runs, except
// for the hundredths that other processes have reserved. What is not kept does not count.
func TestScopeRecords_areBoundedAcrossProcesses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ most, processes, spare int }{
		"one record":             {1, 3, 0},
		"few records":            {10, 3, 0},
		"one at a time":          {150, 4, 0},
		"several at a time":      {1000, 3, 3 * 10},
		"several in one process": {1000, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := memory.New()
				processes := recordsProcesses(t, c.processes, func() guard.Locker { return store },
					idempotency.WithMaxScopeRecords(c.most), idempotency.WithOnce(time.Hour))
				keys := 0
				var seen []string // keys whose answers are recorded
				fill := func() (records int) {
					for range c.most + 2*c.processes + c.spare {
						keys++
						key := fmt.Sprint(keys)
						process := processes[keys%len(processes)]
						recordsPost(process, "greedy", "fails"+key)
						switch w := recordsPost(process, "greedy", key); w.Code {
						case http.StatusCreated:
							records++
							seen = append(seen, key)
						default:
							requireTooMany(t, w)
						}
					}
					return records
				}
				first := fill()
				require.LessOrEqual(t, first, c.most)
				require.GreaterOrEqual(t, first, c.most-c.spare)
				require.Equal(t, http.StatusCreated, recordsPost(processes[0], "other", "1").Code)
				replay := recordsPost(processes[0], "greedy", seen[0])
				require.Equal(t, "true", replay.Header().Get("Idempotency-Replayed"))

				time.Sleep(59 * time.Minute) // the records are there still
				require.LessOrEqual(t, first+fill(), c.most)
				time.Sleep(time.Hour + 30*time.Minute)
				require.GreaterOrEqual(t, fill(), c.most-c.spare, "the records have ended")
			})
		})
	}
}

func requireTooMany(t *testing.T, w *httptest.ResponseRecorder) {
	t.Helper()
	require.Equal(t, http.StatusTooManyRequests, w.Code)
	require.Equal(t, string(idempotency.TooManyKeys), w.Header().Get("Idempotency-Refused"))
	after, err := strconv.Atoi(w.Header().Get("Retry-After"))
	require.NoError(t, err)
	require.Positive(t, after)
	require.LessOrEqual(t, after, int(1.25*65*60))
}

// Requests at the same time, on a real server: it has no more records than the scope may have.
func TestScopeRecords_areBoundedInRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	const most, requests = 20, 200
	processes := recordsProcesses(t, 4, func() guard.Locker { return single.New(rdb) }, idempotency.WithMaxScopeRecords(most))
	var all sync.WaitGroup
	for i := range requests {
		all.Go(func() { recordsPost(processes[i%len(processes)], "greedy", fmt.Sprint(i)) })
	}
	all.Wait()
	records, err := rdb.Keys(t.Context(), "*test::http:*").Result()
	require.NoError(t, err)
	kept := 0
	for _, key := range records {
		if !strings.Contains(key, ":records:") {
			kept++
		}
	}
	require.Equal(t, most, kept, "%v", records)
}

// If the store cannot count, nothing runs, and nothing is lost.
func TestScopeRecords_aStoreThatCannotCount(t *testing.T) {
	t.Parallel()
	g := lifeGuard(t, &guardtest.Scripted{})
	_, err := guardhttp.New(g, guardhttp.IdempotencyKey, guardhttp.WithScope(contentTenant), idempotency.WithMaxScopeRecords(1))
	var setting *guard.SettingError
	require.ErrorAs(t, err, &setting)
	require.Equal(t, "WithMaxScopeRecords", setting.Setting)

	g = lifeGuard(t, &uncounting{Locker: memory.New()})
	h, seen := lifeIdempotent(t, g, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }, idempotency.WithMaxScopeRecords(1))
	require.Equal(t, http.StatusServiceUnavailable, recordsPost(h, "a", "1").Code)
	o := seen.await(t, 1)[0]
	require.Equal(t, idempotency.Unavailable, o.Result)
	require.False(t, guard.Ran(o.Err))
}

// An uncounting store keeps leases, and its ledger fails.
type uncounting struct {
	*memory.Locker
}

func (*uncounting) Raise(context.Context, string, string, int64) (int64, error) {
	return 0, guardtest.Fail(driver.KindConnection)
}

// In shadow mode, what would be refused runs, and leaves nothing.
func TestScopeRecords_inShadowMode(t *testing.T) {
	t.Parallel()
	h, seen := lifeIdempotent(t, lifeGuard(t, memory.New()), func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) },
		idempotency.WithMaxScopeRecords(1), idempotency.WithShadow())
	for key, result := range []idempotency.Result{idempotency.Ran, idempotency.TooManyKeys} {
		require.Equal(t, http.StatusCreated, recordsPost(h, "a", fmt.Sprint(key)).Code)
		require.Equal(t, result, seen.await(t, key+1)[key].Result)
	}
}
