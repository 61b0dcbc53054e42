package guardtest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

// This is the conformance test of a backend. The suite starts each check with an empty store.
func ExampleRun() {
	// func TestLocker(t *testing.T)
	_ = func(t *testing.T) {
		guardtest.Run(t, guardtest.Backend{
			New:    func(testing.TB) guard.Locker { return memory.New() },
			Bubble: true, // for a store without a network
		})
	}
}

// This tests how a handler responds if the key is busy and if the store cannot be asked.
func ExampleScripted() {
	handler := func(g *guard.Guard) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			err := g.Do(r.Context(), "report", func(context.Context) error { return nil })
			switch {
			case errors.Is(err, guard.ErrBusy):
				http.Error(w, "the report is being built", http.StatusConflict)
			case errors.Is(err, guard.ErrStore):
				http.Error(w, "try again later", http.StatusServiceUnavailable)
			default:
				_, _ = fmt.Fprintln(w, "here is your report")
			}
		}
	}

	store := &guardtest.Scripted{
		OnAcquire: func(_ context.Context, n int, _ driver.Claim) (driver.Answer, error) {
			switch n {
			case 1:
				return guardtest.Busy(20*time.Second, "web-2")
			case 2:
				return driver.Answer{}, guardtest.Fail(driver.KindAuth)
			}
			return driver.Answer{}, guardtest.ErrUnscripted // the claim is granted
		},
	}
	g, err := guard.New(store)
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		w := httptest.NewRecorder()
		handler(g)(w, httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/report", nil))
		fmt.Print(w.Code, " ", w.Body)
	}
	if err := g.Close(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 409 the report is being built
	// 503 try again later
	// 200 here is your report
}

func ExampleScripted_calls() {
	store := &guardtest.Scripted{}
	g, err := guard.New(store)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	fmt.Println(g.Do(ctx, "report:2026-11-21", func(context.Context) error { return nil }, guard.WithOnce(time.Hour)))
	fmt.Println(g.Close(ctx))
	for _, c := range store.Calls() {
		fmt.Println(c.Op, c.N, c.Claim.Key, c.After.Done, c.After.Keep)
	}
	// Output:
	// <nil>
	// <nil>
	// acquire 1 report:2026-11-21 false 0s
	// release 1 report:2026-11-21 true 1h0m0s
}
