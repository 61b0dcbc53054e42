package guardhttp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// The kind of work is the route, which is one of few. It is never the path of a request.
func TestName_isTheRoute(t *testing.T) {
	t.Parallel()
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	inside := func(pattern string) func(idempotent func(http.Handler) http.Handler) http.Handler {
		return func(idempotent func(http.Handler) http.Handler) http.Handler {
			mux := http.NewServeMux()
			mux.Handle(pattern, idempotent(handler))
			return mux
		}
	}
	outside := func(idempotent func(http.Handler) http.Handler) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("POST /claims/{id}", handler)
		return idempotent(mux)
	}
	long := "POST /" + strings.Repeat("a", 200) + "/{id}"
	for name, c := range map[string]struct {
		mount func(idempotent func(http.Handler) http.Handler) http.Handler
		path  string
		opts  []guard.Option
		want  string
	}{
		"of a mux in front":     {inside("POST /claims/{id}"), "/claims/17", nil, "POST /claims/{id}"},
		"of a mux behind":       {outside, "/claims/17", nil, "POST /claims/{id}"},
		"without a mux":         {func(idempotent func(http.Handler) http.Handler) http.Handler { return idempotent(handler) }, "/claims/17", nil, "http"},
		"too long for a name":   {inside(long), "/" + strings.Repeat("a", 200) + "/17", nil, "http"},
		"WithName of the Guard": {inside("POST /claims/{id}"), "/claims/17", []guard.Option{guard.WithName("claims")}, "claims"},
	} {
		for _, shadow := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				var names []string
				g, err := guard.New(memory.New(), append(c.opts, guard.WithNamespace("test"), guard.WithHook(guard.Hook{
					AcquireEnd: func(_ context.Context, e guard.AcquireEvent) { names = append(names, e.Name) },
				}))...)
				require.NoError(t, err)
				opts := []guardhttp.Option{idempotency.WithGlobalKeys()}
				if shadow {
					opts = append(opts, idempotency.WithShadow())
				}
				idempotent, err := guardhttp.New(g, guardhttp.IdempotencyKey, opts...)
				require.NoError(t, err)
				r := httptest.NewRequest(http.MethodPost, c.path, strings.NewReader("b"))
				r.Header.Set("Idempotency-Key", "k")
				r, outcome := track(r)
				w := httptest.NewRecorder()
				c.mount(idempotent).ServeHTTP(w, r)
				require.Equal(t, http.StatusCreated, w.Code)
				require.Equal(t, []string{c.want}, names)
				require.Equal(t, c.want, outcome().Name)
				require.NoError(t, g.Close(t.Context()))
			})
		}
	}
}
