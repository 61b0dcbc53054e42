package main

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed-1795987d/onerun/examples/internal/embedded"
	"github.com/seed-1795987d/onerun/guard"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
)

// A server is one of three. They share the database and Redis.
type server struct {
	db      *embedded.DB[stock]
	guard   *guard.Guard
	guarded bool
	frozen  *atomic.Bool // one of them was
}

// handler makes the endpoint idempotent: for each key of a user, claim runs once, on any server.
// A repeated request gets the first answer, or 409 while the first request runs.
func (s *server) handler() http.Handler {
	mux, claim := http.NewServeMux(), http.Handler(http.HandlerFunc(s.claim))
	if s.guarded {
		user := guardhttp.WithScope(guardhttp.FromPathValue("user")) // yours: of the session
		claim = embedded.Must(guardhttp.New(s.guard, guardhttp.IdempotencyKey, user))(claim)
	}
	mux.Handle("POST /claim/{user}", claim)
	return mux
}

// claim gives a coupon to the user. One sale at a time runs, on all servers together.
func (s *server) claim(w http.ResponseWriter, r *http.Request) {
	// the fence is 0 without a lease
	sell := func(ctx context.Context) error { return s.sell(r.PathValue("user"), guard.Fence(ctx)) }
	var err error
	if s.guarded {
		err = s.guard.Do(r.Context(), "coupon:spring", sell, guard.WithWait(10*time.Second))
	} else {
		err = sell(r.Context())
	}
	switch {
	case errors.Is(err, errNone):
		w.WriteHeader(http.StatusGone)
	case err != nil: // the stock was busy, or the lease was lost: a retry can run
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// A stock is what the database has.
type stock struct {
	Remaining int
	Claims    []string // users
	Fence     uint64   // the fence of the last read
	Refused   int      // late writes
}

var errNone, errStale = errors.New("no coupon for you"), errors.New("another server sells now")

// sell reads the stock, thinks, and writes it back. A process that is frozen in between loses its
// lease, and does not know. So the database compares fences: they grow with each holder.
func (s *server) sell(user string, fence uint64) error {
	var left int
	if err := s.db.Update(func(row *stock) error {
		if fence < row.Fence {
			return errStale
		}
		if row.Remaining <= 0 || slices.Contains(row.Claims, user) {
			return errNone
		}
		row.Fence, left = fence, row.Remaining
		return nil
	}); err != nil {
		return err
	}
	time.Sleep(2 * time.Millisecond)
	if s.frozen.CompareAndSwap(false, true) {
		time.Sleep(2 * ttl) // the process is frozen for longer than its lease lasts
		s.db.Await(func(row stock) bool { return row.Remaining < left })
	}
	return s.db.Update(func(row *stock) error {
		if fence < row.Fence {
			row.Refused++
			return errStale
		}
		row.Remaining, row.Claims = left-1, append(row.Claims, user)
		return nil
	})
}
