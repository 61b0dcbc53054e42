package frameworks_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"
	"github.com/labstack/echo/v4"
	echomiddleware "github.com/labstack/echo/v4/middleware"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/http/frameworks"
)

// tenant returns the account that a request was authenticated for. Keys of accounts are separate.
func tenant(r *http.Request) (string, error) { return r.Header.Get("X-Tenant"), nil }

// post sends an order, as a client does, and prints the answer.
func post(h http.Handler, key string) {
	r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/orders", nil)
	r.Header.Set("X-Tenant", "acme")
	r.Header.Set("Idempotency-Key", key)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	replayed := ""
	if w.Header().Get("Idempotency-Replayed") != "" {
		replayed = " (replayed)"
	}
	fmt.Printf("%d %s%s\n", w.Code, strings.TrimSpace(w.Body.String()), replayed)
}

// chi's middleware has the form of guardhttp's, so it needs no recipe.
func Example_chi() {
	g, err := guard.New(memory.New(), guard.WithNamespace("shop")) // in production: single.New(rdb)
	if err != nil {
		panic(err)
	}
	idempotent, err := guardhttp.New(g, guardhttp.IdempotencyKey, guardhttp.WithScope(tenant))
	if err != nil {
		panic(err)
	}

	orders := 0
	r := chi.NewRouter()
	r.Use(chimiddleware.Recoverer) // outside, with authentication
	r.With(idempotent).Post("/orders", func(w http.ResponseWriter, _ *http.Request) {
		orders++
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "order %d", orders)
	})

	post(r, "k1")
	post(r, "k1") // a retry
	post(r, "k2")
	// Output:
	// 201 order 1
	// 201 order 1 (replayed)
	// 201 order 2
}

func ExampleGin() {
	g, err := guard.New(memory.New(), guard.WithNamespace("shop")) // in production: single.New(rdb)
	if err != nil {
		panic(err)
	}
	idempotent, err := guardhttp.New(g, guardhttp.IdempotencyKey, guardhttp.WithScope(tenant))
	if err != nil {
		panic(err)
	}

	orders := 0
	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	r.Use(gin.Recovery()) // outside, with authentication
	r.POST("/orders", frameworks.Gin(idempotent), func(c *gin.Context) {
		orders++
		c.String(http.StatusCreated, "order %d", orders)
	})

	post(r, "k1")
	post(r, "k1") // a retry
	post(r, "k2")
	// Output:
	// 201 order 1
	// 201 order 1 (replayed)
	// 201 order 2
}

// The error of a handler is answered inside, by echo's own error handler, and is not kept here.
func ExampleEcho() {
	g, err := guard.New(memory.New(), guard.WithNamespace("shop")) // in production: single.New(rdb)
	if err != nil {
		panic(err)
	}
	idempotent, err := guardhttp.New(g, guardhttp.IdempotencyKey, guardhttp.WithScope(tenant))
	if err != nil {
		panic(err)
	}

	orders := 0
	e := echo.New()
	e.Use(echomiddleware.Recover()) // outside, with authentication
	e.POST("/orders", func(c echo.Context) error {
		if orders++; orders == 1 {
			return echo.NewHTTPError(http.StatusServiceUnavailable, "try again")
		}
		return c.String(http.StatusCreated, fmt.Sprintf("order %d", orders))
	}, frameworks.Echo(idempotent))

	post(e, "k1")
	post(e, "k1") // a retry, which runs: answers of 500 and above are not kept
	post(e, "k1")
	// Output:
	// 503 {"message":"try again"}
	// 201 order 2
	// 201 order 2 (replayed)
}
