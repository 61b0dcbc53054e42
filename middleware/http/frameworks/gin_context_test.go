package frameworks_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/http/frameworks"
)

type accountKey struct{}

// What gin's c.Set keeps is not in the request's context. The refusal says so, and the recipe of
// the documentation works.
func TestGin_anAccountForTheScope(t *testing.T) {
	for name, c := range map[string]struct {
		set    gin.HandlerFunc
		status int
	}{
		"c.Set": {func(c *gin.Context) { c.Set("user", "alice") }, http.StatusInternalServerError},
		"the request's context": {func(c *gin.Context) {
			c.Request = c.Request.WithContext(context.WithValue(c.Request.Context(), accountKey{}, "alice"))
		}, http.StatusCreated},
	} {
		t.Run(name, func(t *testing.T) {
			var refused error
			g, err := guard.New(memory.New(), guard.WithNamespace("test"), guard.WithHook(guard.Hook{
				Outcome: func(_ context.Context, o guard.Outcome) { refused = o.Refused }}))
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
			idempotent, err := guardhttp.New(g, guardhttp.IdempotencyKey, guardhttp.WithScope(guardhttp.FromContext(accountKey{})))
			require.NoError(t, err)
			gin.SetMode(gin.ReleaseMode)
			engine := gin.New()
			engine.POST("/claims", c.set, frameworks.Gin(idempotent), func(c *gin.Context) { c.String(http.StatusCreated, "claim") })
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/claims", nil)
			r.Header.Set("Idempotency-Key", "k")
			w := httptest.NewRecorder()
			engine.ServeHTTP(w, r)
			require.Equal(t, c.status, w.Code)
			if c.status >= 500 {
				require.ErrorContains(t, refused, "c.Set")
			}
		})
	}
}
