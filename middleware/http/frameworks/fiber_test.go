package frameworks_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/adaptor"
	"github.com/stretchr/testify/require"
)

// Fiber's adaptor.HTTPMiddleware runs the handler after the middleware has returned. Requests are
// refused there before anything runs, and the key stays free.
func TestFiber_itsHTTPMiddlewareIsRefused(t *testing.T) {
	for name, status := range map[string]int{"success": http.StatusCreated, "failure": http.StatusInternalServerError} {
		t.Run(name, func(t *testing.T) {
			var runs atomic.Int64
			app := fiberApp(&runs, status)
			outer := fiber.New(fiber.Config{DisableStartupMessage: true})
			outer.Use(adaptor.HTTPMiddleware(newMiddleware(t)))
			outer.Mount("/", app)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			go func() { _ = outer.Listener(l) }()
			t.Cleanup(func() { _ = outer.Shutdown() })
			for range 2 {
				status, header := postClaim(t, l.Addr().String())
				require.Equal(t, http.StatusInternalServerError, status)
				require.Equal(t, "refused", header.Get("Idempotency-Refused"))
			}
			require.Zero(t, runs.Load())
		})
	}
}

func fiberApp(runs *atomic.Int64, status int) *fiber.App {
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	app.Post("/claims", func(c *fiber.Ctx) error {
		runs.Add(1)
		return c.Status(status).SendString("answer")
	})
	return app
}

func postClaim(t *testing.T, address string) (int, http.Header) {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, "http://"+address+"/claims", strings.NewReader("{}"))
	require.NoError(t, err)
	r.Header.Set("Idempotency-Key", `"fiber"`)
	w, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	require.NoError(t, w.Body.Close())
	return w.StatusCode, w.Header
}

// idempotent(adaptor.FiberApp(app)) replays the answer of a Fiber app.
func TestFiber_theAppInside(t *testing.T) {
	var runs atomic.Int64
	s := httptest.NewServer(newMiddleware(t)(adaptor.FiberApp(fiberApp(&runs, http.StatusCreated))))
	t.Cleanup(s.Close)
	address := s.Listener.Addr().String()
	status, _ := postClaim(t, address)
	require.Equal(t, http.StatusCreated, status)
	status, header := postClaim(t, address)
	require.Equal(t, http.StatusCreated, status)
	require.Equal(t, "true", header.Get("Idempotency-Replayed"))
	require.EqualValues(t, 1, runs.Load())
}
