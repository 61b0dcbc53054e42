package frameworks_test

import (
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/emicklei/go-restful/v3"
	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"
	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/adaptor"
	fiberrecover "github.com/gofiber/fiber/v2/middleware/recover"
	"github.com/gorilla/mux"
	"github.com/klauspost/compress/gzhttp"
	"github.com/labstack/echo/v4"
	echomiddleware "github.com/labstack/echo/v4/middleware"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"

	"github.com/seed-1795987d/onerun/middleware/http/frameworks"
)

type middleware = func(http.Handler) http.Handler

// A stand is a way to mount the shop behind the middleware.
type stand struct {
	name  string
	http2 bool
	// buffers means that nothing leaves before the handler has returned.
	buffers bool
	mount   func(t *testing.T, s *shop, idempotent middleware) http.Handler
	// serve is for a framework that has its own server, instead of mount. It returns its address.
	serve func(t *testing.T, s *shop, idempotent middleware) string
}

var stands = []stand{
	{name: "net/http mux", mount: serveMux},
	{name: "net/http mux, HTTP/2", http2: true, mount: serveMux},
	{name: "chi", mount: func(_ *testing.T, s *shop, idempotent middleware) http.Handler {
		r := chi.NewRouter()
		r.Use(chimiddleware.Recoverer, chimiddleware.RequestID, idempotent)
		for _, path := range paths {
			r.Post(path, s.ServeHTTP)
		}
		return r
	}},
	{name: "gin", mount: ginEngine},
	{name: "gin, HTTP/2", http2: true, mount: ginEngine},
	{name: "echo", mount: echoServer},
	{name: "echo, HTTP/2", http2: true, mount: echoServer},
	{name: "gorilla/mux", mount: func(_ *testing.T, s *shop, idempotent middleware) http.Handler {
		r := mux.NewRouter()
		r.Use(mux.MiddlewareFunc(idempotent))
		for _, path := range paths {
			r.HandleFunc(path, s.ServeHTTP).Methods(http.MethodPost)
		}
		return r
	}},
	{name: "go-restful", mount: func(_ *testing.T, s *shop, idempotent middleware) http.Handler {
		service := new(restful.WebService)
		for _, path := range paths {
			service.Route(service.POST(path).Consumes("*/*").Produces("*/*").To(func(r *restful.Request, w *restful.Response) {
				s.ServeHTTP(w.ResponseWriter, r.Request)
			}))
		}
		container := restful.NewContainer()
		container.Filter(restful.HttpMiddlewareHandlerToFilter(idempotent))
		return container.Add(service)
	}},
	{name: "Fiber app inside", buffers: true, mount: func(_ *testing.T, s *shop, idempotent middleware) http.Handler {
		app := fiber.New(fiber.Config{DisableStartupMessage: true})
		app.Use(fiberrecover.New())
		for _, path := range paths {
			app.Post(path, adaptor.HTTPHandler(s))
		}
		return idempotent(adaptor.FiberApp(app))
	}},
	{name: "iris", mount: irisApp},
	{name: "hertz", serve: hertzServer},
	{name: "Kratos", mount: kratosServer},
	{name: "httputil.ReverseProxy inside", mount: func(t *testing.T, s *shop, idempotent middleware) http.Handler {
		backend := httptest.NewServer(s)
		t.Cleanup(backend.Close)
		to, err := url.Parse(backend.URL)
		require.NoError(t, err)
		return idempotent(&httputil.ReverseProxy{ErrorLog: log.New(io.Discard, "", 0), Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }})
	}},
	{name: "httputil.ReverseProxy outside", mount: func(t *testing.T, s *shop, idempotent middleware) http.Handler {
		backend := httptest.NewServer(idempotent(s))
		t.Cleanup(backend.Close)
		to, err := url.Parse(backend.URL)
		require.NoError(t, err)
		proxy := &httputil.ReverseProxy{ErrorLog: log.New(io.Discard, "", 0), Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			// Otherwise the server closes the request's body when the response begins, while the
			// proxy's transport may still look for its end, and cuts the response off then.
			_ = http.NewResponseController(w).EnableFullDuplex()
			proxy.ServeHTTP(w, r)
		})
	}},
	{name: "gzhttp outside", mount: func(_ *testing.T, s *shop, idempotent middleware) http.Handler {
		return gzhttp.GzipHandler(idempotent(s))
	}},
	{name: "otelhttp outside", mount: func(_ *testing.T, s *shop, idempotent middleware) http.Handler {
		return otelhttp.NewHandler(idempotent(s), "shop")
	}},
	{name: "http.TimeoutHandler outside", buffers: true, mount: func(_ *testing.T, s *shop, idempotent middleware) http.Handler {
		return http.TimeoutHandler(idempotent(s), time.Minute, "too late")
	}},
}

func serveMux(_ *testing.T, s *shop, idempotent middleware) http.Handler {
	m := http.NewServeMux()
	for _, path := range paths {
		m.Handle("POST "+path, idempotent(s))
	}
	return m
}

// ginEngine has the shop's handlers in gin's own terms.
func ginEngine(_ *testing.T, s *shop, idempotent middleware) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.Use(gin.RecoveryWithWriter(io.Discard), func(c *gin.Context) {
		c.Next() // and answer errors, as many services do
		if len(c.Errors) > 0 && !c.Writer.Written() {
			c.JSON(http.StatusInternalServerError, gin.H{"message": c.Errors.Last().Error()})
		}
	}, frameworks.Gin(idempotent))
	run := func(f func(c *gin.Context)) gin.HandlerFunc {
		return func(c *gin.Context) { s.runs.Add(1); f(c) }
	}
	engine.POST("/created", run(func(c *gin.Context) {
		c.Header("Location", "/claims/1")
		c.JSON(http.StatusCreated, gin.H{"claim": 1})
	}))
	engine.POST("/error", run(func(c *gin.Context) { _ = c.Error(errShop) }))
	engine.POST("/flush", run(func(c *gin.Context) {
		c.Header("Content-Type", "text/plain")
		s.write(c.Writer, flushedPart, func() { c.String(http.StatusOK, strings.Repeat(flushedPart, flushParts-1)) })
	}))
	engine.POST("/stream", run(func(c *gin.Context) {
		c.Header("Content-Type", "text/event-stream")
		s.write(c.Writer, "data: 1\n\n", func() { _, _ = c.Writer.WriteString("data: 2\n\n") })
	}))
	engine.POST("/upload", run(func(c *gin.Context) {
		header, err := c.FormFile("file")
		if err != nil {
			c.AbortWithStatus(http.StatusBadRequest)
			return
		}
		file, err := header.Open()
		if err != nil {
			c.AbortWithStatus(http.StatusBadRequest)
			return
		}
		defer file.Close()
		c.DataFromReader(http.StatusCreated, header.Size, "text/plain", file, nil)
	}))
	engine.POST("/panic", func(c *gin.Context) {
		if s.runs.Add(1) == 1 {
			panic(errShop)
		}
		c.Status(http.StatusCreated)
	})
	engine.POST("/gone", run(func(c *gin.Context) {
		<-s.gone
		c.String(http.StatusOK, receipt)
	}))
	return engine
}

// echoServer has the shop's handlers in echo's own terms.
func echoServer(_ *testing.T, s *shop, idempotent middleware) http.Handler {
	e := echo.New()
	e.Logger.SetOutput(io.Discard)
	e.Use(echomiddleware.Recover(), frameworks.Echo(idempotent))
	run := func(f echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error { s.runs.Add(1); return f(c) }
	}
	e.POST("/created", run(func(c echo.Context) error {
		c.Response().Header().Set("Location", "/claims/1")
		return c.JSONBlob(http.StatusCreated, []byte(receipt))
	}))
	e.POST("/error", run(func(echo.Context) error { return echo.NewHTTPError(http.StatusInternalServerError, errShop.Error()) }))
	e.POST("/flush", run(func(c echo.Context) error {
		c.Response().Header().Set("Content-Type", "text/plain")
		s.write(c.Response(), flushedPart, func() { _, _ = io.WriteString(c.Response(), strings.Repeat(flushedPart, flushParts-1)) })
		return nil
	}))
	e.POST("/stream", run(func(c echo.Context) error {
		c.Response().Header().Set("Content-Type", "text/event-stream")
		s.write(c.Response(), "data: 1\n\n", func() { _, _ = io.WriteString(c.Response(), "data: 2\n\n") })
		return nil
	}))
	e.POST("/upload", run(func(c echo.Context) error {
		header, err := c.FormFile("file")
		if err != nil {
			return err
		}
		file, err := header.Open()
		if err != nil {
			return err
		}
		defer file.Close()
		return c.Stream(http.StatusCreated, "text/plain", file)
	}))
	e.POST("/panic", func(c echo.Context) error {
		if s.runs.Add(1) == 1 {
			panic(errors.New("boom"))
		}
		return c.NoContent(http.StatusCreated)
	})
	e.POST("/gone", run(func(c echo.Context) error {
		<-s.gone
		return c.String(http.StatusOK, receipt)
	}))
	return e
}
