package guardhttp_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// The next version of a service may have the route that this one has not.
func TestMux_withoutARouteIsPassedOn(t *testing.T) {
	t.Parallel()
	g := lifeGuard(t, memory.New())
	h, runs := counted(nil)
	before, after := http.NewServeMux(), http.NewServeMux()
	for _, mux := range []*http.ServeMux{before, after} {
		mux.HandleFunc("GET /v2/claims", func(http.ResponseWriter, *http.Request) {})
	}
	after.HandleFunc("POST /v2/claims", h)
	after.HandleFunc("POST /v2/orders", h)
	outer := http.NewServeMux() // sets http.Request.Pattern
	seen := new(outcomeLog)
	idempotent, err := guardhttp.New(g, guardhttp.IdempotencyKey, guardhttp.WithScope(tenant), idempotency.WithObserver(seen.observer()))
	require.NoError(t, err)
	outer.Handle("/v2/", idempotent(before))
	old, next := httptest.NewServer(outer), httptest.NewServer(idempotent(after))
	t.Cleanup(old.Close)
	t.Cleanup(next.Close)
	client := lifeClient(t)
	for path, status := range map[string]int{"/v2/claims": http.StatusMethodNotAllowed, "/v2/orders": http.StatusNotFound} {
		for range 2 {
			a := lifeSend(t.Context(), client, old.URL+path, "k", "b")
			require.Equal(t, status, a.status)
			require.False(t, a.replayed())
		}
		require.Equal(t, http.StatusCreated, lifeSend(t.Context(), client, next.URL+path, "k", "b").status)
		require.True(t, lifeSend(t.Context(), client, next.URL+path, "k", "b").replayed())
	}
	require.EqualValues(t, 2, runs.Load())
	seen.awaitResult(t, idempotency.Untouched, 4)
}
