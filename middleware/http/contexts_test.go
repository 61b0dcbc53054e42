package guardhttp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// A handler may look at its context's error only, which nothing has made it wait for.
func TestTimeout_isSeenByAHandlerThatAsksForTheErrorOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := guard.New(memory.New(), guard.WithNamespace("test"))
		require.NoError(t, err)
		mw, err := guardhttp.New(g, guardhttp.FromHeader("Key"), idempotency.WithGlobalKeys(), idempotency.WithMaxHold(time.Minute))
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil)
		r.Header.Set("Key", "k")
		start := time.Now()
		mw(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			cancel()                    // the client leaves
			time.Sleep(time.Second / 2) // from now on it never looks when the minute ends
			require.NoError(t, r.Context().Err())
			for r.Context().Err() == nil {
				time.Sleep(time.Second)
			}
			require.ErrorIs(t, context.Cause(r.Context()), context.DeadlineExceeded)
		})).ServeHTTP(httptest.NewRecorder(), r)
		require.Equal(t, time.Minute+time.Second/2, time.Since(start))
		require.NoError(t, g.Close(t.Context()))
	})
}
