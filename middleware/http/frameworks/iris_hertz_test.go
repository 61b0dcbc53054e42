package frameworks_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/app/server"
	"github.com/cloudwego/hertz/pkg/common/adaptor"
	"github.com/cloudwego/hertz/pkg/common/hlog"
	"github.com/kataras/iris/v12"
	"github.com/kataras/iris/v12/middleware/recover"
	"github.com/stretchr/testify/require"
)

// irisApp has the shop behind the middleware by WrapRouter.
func irisApp(t *testing.T, s *shop, idempotent middleware) http.Handler {
	t.Helper()
	app := iris.New().SetName("shop")
	app.Logger().SetOutput(io.Discard)
	app.Use(recover.New())
	app.WrapRouter(func(w http.ResponseWriter, r *http.Request, router http.HandlerFunc) {
		idempotent(router).ServeHTTP(w, r)
	})
	for _, path := range paths {
		app.Post(path, func(c iris.Context) { s.ServeHTTP(c.ResponseWriter(), c.Request()) })
	}
	require.NoError(t, app.Build())
	return app
}

// hertzServer has the shop behind the middleware by hertz' adaptor, on hertz' own server.
func hertzServer(t *testing.T, s *shop, idempotent middleware) string {
	t.Helper()
	return hertzServe(t, func(h *server.Hertz) {
		for _, path := range paths {
			h.POST(path, adaptor.HertzHandler(idempotent(s)))
		}
	})
}

func hertzServe(t *testing.T, routes func(h *server.Hertz)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	hlog.SetOutput(io.Discard)
	h := server.Default(server.WithListener(l), server.WithDisablePrintRoute(true))
	routes(h)
	over := make(chan struct{})
	go func() { defer close(over); _ = h.Run() }()
	t.Cleanup(func() { _ = h.Close(); <-over })
	return l.Addr().String()
}

// Handlers in a framework's own terms behind an adaptor for handlers of net/http write past the
// middleware. Their answers are never kept as an empty success: a retry of a success gets 409.
func TestAdaptors_handlersThatWritePast(t *testing.T) {
	for name, c := range map[string]func(t *testing.T, runs *atomic.Int64, idempotent middleware) string{
		"iris.FromStd": func(t *testing.T, runs *atomic.Int64, idempotent middleware) string {
			app := iris.New()
			app.Logger().SetOutput(io.Discard)
			app.Post("/claims", iris.FromStd(func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
				idempotent(next).ServeHTTP(w, r)
			}), func(c iris.Context) {
				runs.Add(1)
				c.StatusCode(http.StatusCreated)
				_, _ = c.WriteString("answer")
			})
			require.NoError(t, app.Build())
			s := httptest.NewServer(app)
			t.Cleanup(s.Close)
			return s.Listener.Addr().String()
		},
		"hertz' Next": func(t *testing.T, runs *atomic.Int64, idempotent middleware) string {
			return hertzServe(t, func(h *server.Hertz) {
				h.POST("/claims", func(ctx context.Context, c *app.RequestContext) {
					adaptor.HertzHandler(idempotent(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
						c.Next(r.Context())
					})))(ctx, c)
					c.Abort()
				}, func(_ context.Context, c *app.RequestContext) {
					runs.Add(1)
					c.String(http.StatusCreated, "answer")
				})
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			var runs atomic.Int64
			address := c(t, &runs, newMiddleware(t))
			status, header := postClaim(t, address)
			require.Equal(t, http.StatusCreated, status)
			require.Empty(t, header.Get("Idempotency-Replayed"))
			status, header = postClaim(t, address)
			require.Equal(t, http.StatusConflict, status)
			require.Equal(t, "not_replayable", header.Get("Idempotency-Refused"))
			require.EqualValues(t, 1, runs.Load())
		})
	}
}
