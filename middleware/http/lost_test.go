package guardhttp_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// A handler whose lease is lost, and which returns normally, answers its client. Nothing is kept,
// so that a retry runs.
func TestLost_theAnswerOfAHandlerThatGoesOnIsSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		g := lifeGuard(t, store, guard.WithTTL(9*time.Second))
		idempotent, err := guardhttp.New(g, guardhttp.IdempotencyKey, idempotency.WithGlobalKeys())
		require.NoError(t, err)
		runs, lost := 0, true
		h := idempotent(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			runs++
			lease, ok := guard.FromContext(r.Context())
			require.True(t, ok)
			if lost {
				_, err := store.Release(t.Context(), lease.Claims()[0], driver.After{})
				require.NoError(t, err)
				<-r.Context().Done() // after the next renewal
			}
			w.WriteHeader(http.StatusCreated)
		}))
		post := func() int {
			r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader("{}"))
			r.Header.Set("Idempotency-Key", "order-1")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w.Code
		}
		require.Equal(t, http.StatusCreated, post())
		lost = false
		require.Equal(t, http.StatusCreated, post())
		require.Equal(t, 2, runs, "nothing was kept")
		require.Equal(t, http.StatusCreated, post())
		require.Equal(t, 2, runs, "a replay")
	})
}
