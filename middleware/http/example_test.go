package guardhttp_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
)

// tenant is a scope: who an authentication has found to call.
func tenant(r *http.Request) (string, error) { return r.Header.Get("X-Tenant"), nil }

// send sends a request and prints what comes back.
func send(h http.Handler, method, path, key, body string) {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("X-Tenant", "acme")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	answer, _ := io.ReadAll(w.Result().Body)
	text := string(answer)
	if w.Header().Get("Content-Type") == "application/problem+json" {
		text = "a problem"
	}
	replayed := ""
	if w.Header().Get("Idempotency-Replayed") != "" {
		replayed = " (replayed)"
	}
	fmt.Printf("%d %s%s\n", w.Code, strings.TrimSpace(text), replayed)
}

func ExampleNew() {
	g, err := guard.New(memory.New())
	if err != nil {
		panic(err)
	}
	idempotent, err := guardhttp.New(g, guardhttp.IdempotencyKey, guardhttp.WithScope(tenant))
	if err != nil {
		panic(err)
	}
	claims := 0
	mux := http.NewServeMux()
	mux.Handle("POST /claims", idempotent(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		claims++
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "claim %d", claims)
	})))

	send(mux, "POST", "/claims", "8e03978e-40d5", `{"coupon":1}`)
	send(mux, "POST", "/claims", "8e03978e-40d5", `{"coupon":1}`) // a retry
	send(mux, "POST", "/claims", "8e03978e-40d5", `{"coupon":2}`) // another request
	send(mux, "POST", "/claims", "", `{"coupon":1}`)
	// Output:
	// 201 claim 1
	// 201 claim 1 (replayed)
	// 422 a problem
	// 400 a problem
}
