package frameworks_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"
	"github.com/labstack/echo/v4"
	echomiddleware "github.com/labstack/echo/v4/middleware"
	"github.com/stretchr/testify/require"

	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/http/frameworks"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// recovers answers in place of a handler that has panicked.
func recovers(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if recover() != nil {
				http.Error(w, "recovered", http.StatusInternalServerError)
			}
		}()
		h.ServeHTTP(w, r)
	})
}

// A net/http handler, and those of gin and echo, which fail in their first run.
func (s *shop) fails(how string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/claims/1")
		if s.runs.Add(1) > 1 {
			w.WriteHeader(http.StatusCreated)
			return
		}
		switch how {
		case "panic":
			panic(errShop)
		case "abort":
			panic(http.ErrAbortHandler)
		case "late":
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, receipt)
			panic(errShop)
		}
		http.Error(w, errShop.Error(), http.StatusInternalServerError)
	}
}

func (s *shop) failsInGin(how string) gin.HandlerFunc {
	return func(c *gin.Context) {
		if s.runs.Load() == 0 && how == "error" {
			s.runs.Add(1)
			_ = c.Error(errShop)
			return
		}
		s.fails(how)(c.Writer, c.Request)
	}
}

func (s *shop) failsInEcho(how string) echo.HandlerFunc {
	return func(c echo.Context) error {
		if s.runs.Load() == 0 && how == "error" {
			s.runs.Add(1)
			return errShop
		}
		s.fails(how)(c.Response(), c.Request())
		return nil
	}
}

// ginAnswers answers the error of a handler that has written nothing.
func ginAnswers(c *gin.Context) {
	c.Next()
	if len(c.Errors) > 0 && !c.Writer.Written() {
		c.String(http.StatusInternalServerError, c.Errors.Last().Error())
	}
}

// recoveries are ways to recover from a panic, outside and inside of the middleware. late means
// that the framework answers an error of the handler after all middleware, so that it cannot be
// told from an empty answer.
var recoveries = []struct {
	name  string
	late  bool
	mount func(s *shop, how string, idempotent middleware) http.Handler
}{
	{name: "net/http", mount: func(s *shop, how string, idempotent middleware) http.Handler { return idempotent(s.fails(how)) }},
	{name: "net/http, recovers outside", mount: func(s *shop, how string, idempotent middleware) http.Handler {
		return recovers(idempotent(s.fails(how)))
	}},
	{name: "net/http, recovers inside", mount: func(s *shop, how string, idempotent middleware) http.Handler {
		return idempotent(recovers(s.fails(how)))
	}},
	{name: "chi, Recoverer outside", mount: chiWith(func(m middleware) []middleware { return []middleware{chimiddleware.Recoverer, m} })},
	{name: "chi, Recoverer inside", mount: chiWith(func(m middleware) []middleware { return []middleware{m, chimiddleware.Recoverer} })},
	{name: "gin, Recovery outside", mount: ginWith(func(m gin.HandlerFunc) []gin.HandlerFunc {
		return []gin.HandlerFunc{gin.RecoveryWithWriter(io.Discard), ginAnswers, m}
	})},
	{name: "gin, Recovery inside", mount: ginWith(func(m gin.HandlerFunc) []gin.HandlerFunc {
		return []gin.HandlerFunc{ginAnswers, m, gin.RecoveryWithWriter(io.Discard)}
	})},
	{name: "echo, Recover outside", mount: echoWith(func(m middleware) []echo.MiddlewareFunc {
		return []echo.MiddlewareFunc{echomiddleware.Recover(), frameworks.Echo(m)}
	})},
	{name: "echo, Recover inside", mount: echoWith(func(m middleware) []echo.MiddlewareFunc {
		return []echo.MiddlewareFunc{frameworks.Echo(m), echomiddleware.Recover()}
	})},
	{name: "echo, Recover inside that returns errors", mount: echoWith(func(m middleware) []echo.MiddlewareFunc {
		return []echo.MiddlewareFunc{frameworks.Echo(m), recoverReturns}
	})},
	{name: "echo, behind another WrapMiddleware", mount: echoWith(func(m middleware) []echo.MiddlewareFunc {
		return []echo.MiddlewareFunc{echomiddleware.Recover(), echo.WrapMiddleware(recovers), frameworks.Echo(m)}
	})},
	{name: "echo.WrapMiddleware", late: true, mount: echoWith(func(m middleware) []echo.MiddlewareFunc {
		return []echo.MiddlewareFunc{echo.WrapMiddleware(m)}
	})},
	{name: "echo.WrapMiddleware, Recover outside", late: true, mount: echoWith(func(m middleware) []echo.MiddlewareFunc {
		return []echo.MiddlewareFunc{echomiddleware.Recover(), echo.WrapMiddleware(m)}
	})},
	{name: "echo.WrapMiddleware, Recover inside", late: true, mount: echoWith(func(m middleware) []echo.MiddlewareFunc {
		return []echo.MiddlewareFunc{echo.WrapMiddleware(m), echomiddleware.Recover()}
	})},
	{name: "echo.WrapMiddleware, Recover inside that returns errors", late: true, mount: echoWith(func(m middleware) []echo.MiddlewareFunc {
		return []echo.MiddlewareFunc{echo.WrapMiddleware(m), recoverReturns}
	})},
	{name: "echo.WrapMiddleware, with others", late: true, mount: echoWith(func(m middleware) []echo.MiddlewareFunc {
		return []echo.MiddlewareFunc{echomiddleware.Recover(), echo.WrapMiddleware(func(h http.Handler) http.Handler {
			return chimiddleware.RequestID(m(chimiddleware.NoCache(h)))
		})}
	})},
}

// recoverReturns makes an error of a panic. echo answers it after all middleware.
var recoverReturns = echomiddleware.RecoverWithConfig(echomiddleware.RecoverConfig{DisableErrorHandler: true})

func chiWith(order func(m middleware) []middleware) func(*shop, string, middleware) http.Handler {
	return func(s *shop, how string, idempotent middleware) http.Handler {
		r := chi.NewRouter()
		r.Use(order(idempotent)...)
		r.Post("/", s.fails(how))
		return r
	}
}

func ginWith(order func(m gin.HandlerFunc) []gin.HandlerFunc) func(*shop, string, middleware) http.Handler {
	return func(s *shop, how string, idempotent middleware) http.Handler {
		gin.SetMode(gin.ReleaseMode)
		engine := gin.New()
		engine.Use(order(frameworks.Gin(idempotent))...)
		engine.POST("/", s.failsInGin(how))
		return engine
	}
}

func echoWith(order func(m middleware) []echo.MiddlewareFunc) func(*shop, string, middleware) http.Handler {
	return func(s *shop, how string, idempotent middleware) http.Handler {
		e := echo.New()
		e.Logger.SetOutput(io.Discard)
		e.Use(order(idempotent)...)
		e.POST("/", s.failsInEcho(how))
		return e
	}
}

// A handler that has failed never looks like an empty success, whoever recovers from its panic,
// and wherever. Its retry runs, unless its failure cannot be told from an empty answer.
func TestRecover_aFailureIsNoSuccess(t *testing.T) {
	for _, row := range recoveries {
		for _, how := range []string{"panic", "abort", "error"} {
			for mode, opts := range map[string][]guardhttp.Option{"at once": nil, "after the record": {idempotency.WithAnswerAfterRecord()}} {
				t.Run(fmt.Sprint(row.name, "/", how, "/", mode), func(t *testing.T) {
					b := open(t, stand{mount: func(_ *testing.T, s *shop, idempotent middleware) http.Handler {
						return row.mount(s, how, idempotent)
					}}, opts...)
					first := b.post(t, "/")
					// gin's Recovery does not answer http.ErrAbortHandler, with or without a
					// middleware.
					if first.err == nil && (how != "abort" || row.name != "gin, Recovery outside") {
						require.GreaterOrEqual(t, first.status, 500, "%+v", first)
					}
					again := b.post(t, "/")
					require.NoError(t, again.err)
					require.False(t, again.replayed)
					if row.late && again.status == http.StatusConflict {
						require.EqualValues(t, 1, b.runs.Load())
						return
					}
					require.Equal(t, http.StatusCreated, again.status)
					require.EqualValues(t, 2, b.runs.Load())
				})
			}
		}
	}
}

// An answer that is held back is not sent if its handler panics, so that a middleware in front can
// answer instead.
func TestRecover_aPanicInAnAnswerThatIsHeldBack(t *testing.T) {
	for _, row := range recoveries {
		if strings.Contains(row.name, "inside") {
			continue // the middleware does not learn of the panic
		}
		t.Run(row.name, func(t *testing.T) {
			b := open(t, stand{mount: func(_ *testing.T, s *shop, idempotent middleware) http.Handler {
				return row.mount(s, "late", idempotent)
			}}, idempotency.WithAnswerAfterRecord())
			first := b.post(t, "/")
			if first.err == nil {
				require.GreaterOrEqual(t, first.status, 500, "%+v", first)
				require.NotContains(t, first.body, receipt)
				require.Empty(t, first.header.Get("Location"))
			}
			again := b.post(t, "/")
			require.Equal(t, http.StatusCreated, again.status)
			require.EqualValues(t, 2, b.runs.Load())
		})
	}
}

// A handler that succeeds and writes nothing answers with an empty 200, which is replayed. Behind
// echo.WrapMiddleware it could have failed.
func TestRecover_anEmptySuccessIsReplayed(t *testing.T) {
	for _, row := range recoveries {
		t.Run(row.name, func(t *testing.T) {
			b := open(t, stand{mount: func(_ *testing.T, s *shop, idempotent middleware) http.Handler {
				s.runs.Add(1) // so that it does not fail
				return row.mount(s, "", func(h http.Handler) http.Handler {
					return idempotent(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						h.ServeHTTP(&muteWriter{ResponseWriter: w}, r)
					}))
				})
			}})
			first := b.post(t, "/")
			require.NoError(t, first.err)
			require.Equal(t, http.StatusOK, first.status)
			again := b.post(t, "/")
			if row.late {
				require.Equal(t, http.StatusConflict, again.status)
				return
			}
			require.True(t, again.replayed)
			require.Equal(t, http.StatusOK, again.status)
		})
	}
}

// A muteWriter writes nothing.
type muteWriter struct{ http.ResponseWriter }

func (*muteWriter) WriteHeader(int)             {}
func (*muteWriter) Write(p []byte) (int, error) { return len(p), nil }
