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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
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

// recordsProcesses returns the handlers of several processes on one store.
func recordsProcesses(t *testing.T, n int, store func() guard.Locker, opts ...guardhttp.Option) []http.Handler {
	t.Helper()
	processes := make([]http.Handler, n)
	for i := range processes {
		g, err := guard.New(store(), guard.WithNamespace("test"))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
		processes[i], _ = lifeIdempotent(t, g, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusCreated)
		}, opts...)
	}
	return processes
}

func assertTooMany(t *testing.T, w *httptest.ResponseRecorder) {
	t.Helper()
	assert.Equal(t, http.StatusTooManyRequests, w.Code)
	assert.Equal(t, string(idempotency.TooManyKeys), w.Header().Get("Idempotency-Refused"))
	after, err := strconv.Atoi(w.Header().Get("Retry-After"))
	assert.NoError(t, err)
	assert.Positive(t, after)
	assert.LessOrEqual(t, after, int(1.25*24.1*3600))
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
		all.Go(func() {
			if w := recordsPost(processes[i%len(processes)], "greedy", fmt.Sprint(i)); w.Code != http.StatusCreated {
				assertTooMany(t, w)
			}
		})
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
