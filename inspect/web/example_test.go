package web_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/inspect"
	"github.com/seed-1795987d/onerun/inspect/web"
)

// The page stands behind the application's own authentication. Who may break leases is for a
// function to say.
func ExampleNew() {
	ctx := context.Background()
	g, err := guard.New(memory.New(), guard.WithNamespace("billing"), guard.WithLabel("worker-7"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = g.Close(ctx) }()
	i, err := inspect.New(g)
	if err != nil {
		fmt.Println(err)
		return
	}
	page, err := web.New(i, web.WithHosts("example.com"), web.WithActions(func(r *http.Request) (actor string, ok bool) {
		actor, _, ok = r.BasicAuth() // the password was checked before
		return actor, ok
	}))
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	mux.Handle("/leases/", http.StripPrefix("/leases", page))

	_ = g.Do(ctx, "nightly", func(context.Context) error {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/leases/key?k=nightly", nil))
		fmt.Println(w.Code, strings.Contains(w.Body.String(), "worker-7"))
		return nil
	})
	// Output: 200 true
}
