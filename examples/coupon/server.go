package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/seed-1795987d/onerun/examples/internal/stage"
	"github.com/seed-1795987d/onerun/guard"
)

// What a server says to the parent.
const (
	wordReady   = "ready"   // with the address at which it serves
	wordHolding = "holding" // with its fence: it has read freezeAt and asks for leave to go on
)

// desks is how many users a server sees to at the same time; the others wait in line. If all of them tried for
// the stock at once, they would ask more than an embedded Redis can answer, least of all five of them, which are no
// match for real ones.
const desks = 4

// freezeAt is the stock at which a server is frozen between reading and writing it.
const freezeAt = 60

// A server is one of the processes. The exported fields are what the parent tells it.
type server struct {
	Name      string
	Guarded   bool
	Backend   stage.Backend
	Namespace string
	Database  string

	parent  *stage.Parent
	guard   *guard.Guard
	db      database
	desks   chan struct{} // one for each user who is being seen to
	soldOut atomic.Bool
}

// main is the process. It returns the exit code.
func (s *server) main(ctx context.Context, parent *stage.Parent) int {
	s.parent, s.desks = parent, make(chan struct{}, desks)
	if err := s.run(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", s.Name, err)
		return 1
	}
	return 0
}

// run serves until ctx ends.
func (s *server) run(ctx context.Context) (err error) {
	db, err := stage.OpenDatabase(s.Database)
	if err != nil {
		return err
	}
	defer db.Close()
	s.db = database{db}

	locker, disconnect := s.Backend.Connect()
	defer disconnect()
	if s.guard, err = s.newGuard(locker); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	web := &http.Server{
		Handler:     s.handler(),
		BaseContext: func(net.Listener) context.Context { return ctx }, // nobody waits for a lease when we end
	}
	served := make(chan error, 1)
	go func() { served <- web.Serve(listener) }()
	s.parent.Tell(wordReady, "%s", listener.Addr())

	select {
	case err = <-served:
	case <-ctx.Done():
	}
	// First let requests end, then the leases.
	ending, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	return errors.Join(err, web.Shutdown(ending), s.guard.Close(ending))
}

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /claim/{user}", func(w http.ResponseWriter, r *http.Request) {
		answer(w, s.see(r.Context(), r.PathValue("user")))
	})
	return mux
}

// see lets the user claim when it is their turn.
func (s *server) see(ctx context.Context, user string) error {
	select {
	case s.desks <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-s.desks }()
	if s.soldOut.Load() {
		return errSoldOut // for good: nobody has to wait for a lease to be told that
	}
	err := s.claim(ctx, user)
	switch {
	case errors.Is(err, errSoldOut):
		s.soldOut.Store(true)
	case errors.Is(err, errStale):
		s.parent.Say("has to tell %s to try again: %v", user, errStale)
	}
	return err
}

// answer says how a claim went.
func answer(w http.ResponseWriter, err error) {
	status := statusOf(err)
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1") // in seconds
	}
	w.WriteHeader(status)
	if err != nil {
		fmt.Fprintln(w, err)
	}
}

func statusOf(err error) int {
	var busy *guard.BusyError
	switch {
	case err == nil:
		return http.StatusOK
	case errors.Is(err, errSoldOut):
		return http.StatusGone
	case errors.Is(err, errHasOne), errors.Is(err, guard.ErrDone):
		return http.StatusConflict
	case errors.As(err, &busy) && busy.Key != stockKey:
		return http.StatusConflict // the user's other click is under way
	}
	// The stock was busy for too long, the lease was lost, Redis did not answer: nothing was claimed
	// that the next try would not find.
	return http.StatusServiceUnavailable
}

// think takes a while. When the stock is at freezeAt, it takes until the parent says so, which may freeze
// this process meanwhile.
func (s *server) think(ctx context.Context, remaining int) error {
	time.Sleep(thinking)
	if !s.Guarded || remaining != freezeAt {
		return nil
	}
	_, err := s.parent.Ask(wordHolding, "%d", guard.Fence(ctx))
	return err
}
