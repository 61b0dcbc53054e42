package guardhttp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// Requests with one key that reach two servers, which share a store.
func TestWithLease_withFairServesRequestsInTheOrderInWhichTheyCame(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var ran []string
		work := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			ran = append(ran, r.Header.Get("X-Number")) // one at a time
			time.Sleep(time.Second)                     // virtual time
		})
		store := memory.New()
		var servers []http.Handler
		for range 2 {
			g, err := guard.New(store, guard.WithNamespace("test"))
			require.NoError(t, err)
			defer func() { require.NoError(t, g.Close(context.Background())) }()
			exclusive, err := guardhttp.New(g, guardhttp.IdempotencyKey, idempotency.WithGlobalKeys(), idempotency.WithMode(idempotency.Exclusive),
				idempotency.WithWait(time.Minute), idempotency.WithLease(guard.WithFair()))
			require.NoError(t, err)
			servers = append(servers, exclusive(work))
		}
		want := []string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "10"}
		var all sync.WaitGroup
		for i, number := range want {
			all.Go(func() {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", http.NoBody)
				r.Header.Set("Idempotency-Key", "k")
				r.Header.Set("X-Number", number)
				w := httptest.NewRecorder()
				servers[i%2].ServeHTTP(w, r)
				assert.Equal(t, http.StatusOK, w.Code)
			})
			synctest.Wait()
		}
		all.Wait()
		require.Equal(t, want, ran)
	})
}
