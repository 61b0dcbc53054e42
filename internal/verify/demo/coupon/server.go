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

	"github.com/seed-1795987d/onerun/backend/redlock"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/verify/demo/stage"
)

// What a server says to the parent.
const (
	wordReady   = "ready"   // with the address at which it serves
	wordHolding = "holding" // with its fence: it has read FreezeAt and asks for leave to go on
)

// desks is how many users a server serves at the same time. The others wait in a queue. If all of
// them tried for the stock at once, they would send more than an embedded Redis can answer. Five
// embedded servers, which are slower than real ones, could answer even less.
const desks = 4

// A server is one of the processes. The parent sets the exported fields.
type server struct {
	Name      string
	Guarded   bool
	Backend   stage.Backend
	Namespace string
	Database  string
	Address   string // to serve at
	FreezeAt  int    // the stock at which it can be frozen between reading and writing it, or 0
	Telemetry *telemetrySettings

	parent  *stage.Parent
	tell    telemetry
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
	s.db = database{stage.OpenDatabase(s.Database)}

	if s.Telemetry != nil {
		if s.tell, err = s.watch(); err != nil {
			return err
		}
		// Last, so that it reports the end as well.
		defer func() { err = errors.Join(err, s.tell.close()) }()
	}
	// the hook receives the calls to each node
	locker, disconnect := s.Backend.Connect(redlock.WithHook(s.tell.hook), redlock.WithHook(s.tell.log))
	defer disconnect()
	if s.guard, err = s.newGuard(locker); err != nil {
		return err
	}
	handler, err := s.handler()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", s.Address)
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	web := &http.Server{
		Handler: handler,
		// no request waits in the queue when the server ends
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	served := make(chan error, 1)
	go func() { served <- web.Serve(listener) }()
	s.parent.Tell(wordReady, "%s", listener.Addr())

	select {
	case err = <-served:
	case <-ctx.Done():
	}
	// The guard goes first, as there is little time: it ends the waiting for the stock, and then
	// requests end soon.
	ending, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	return errors.Join(err, s.guard.Close(ending), web.Shutdown(ending))
}

// seat admits a request when a desk is free. It goes in front of the middleware, so that a waiting
// request holds no lease.
func (s *server) seat(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case s.desks <- struct{}{}:
			defer func() { <-s.desks }()
			next.ServeHTTP(w, r)
		case <-r.Context().Done():
			refuse(w, r.Context().Err())
		}
	})
}

// note takes note of why an order was refused.
func (s *server) note(o order, err error) {
	switch {
	case errors.Is(err, errSoldOut):
		s.soldOut.Store(true)
	case errors.Is(err, errStale):
		s.parent.Say("has to tell %s to try again: %v", o.user, errStale)
	}
}

// refuse says why an order was refused, and when to try again if that is of use.
func refuse(w http.ResponseWriter, err error) {
	status := statusOf(err)
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1") // in seconds
	}
	w.WriteHeader(status)
	fmt.Fprintln(w, err)
}

func statusOf(err error) int {
	switch {
	case errors.Is(err, errOrder):
		return http.StatusBadRequest
	case errors.Is(err, errSoldOut):
		return http.StatusGone
	case errors.Is(err, errHasOne):
		return http.StatusConflict
	}
	// The stock was busy for too long, the lease was lost, Redis did not answer: nothing was
	// claimed that the next try would not find.
	return http.StatusServiceUnavailable
}

// think takes a while. When the stock is at FreezeAt, it takes until the parent says so, which may
// freeze this process meanwhile.
func (s *server) think(ctx context.Context, o order, remaining int) error {
	select {
	case <-time.After(o.think):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if !s.Guarded || remaining != s.FreezeAt {
		return nil
	}
	_, err := s.parent.Ask(wordHolding, "%d", guard.Fence(ctx))
	return err
}
