package guardasynq

import (
	"github.com/hibiken/asynq"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/internal/claim"
	"github.com/seed-1795987d/onerun/middleware/internal/refused"
)

// middleware is what New makes.
type middleware struct {
	settings
	core    *claim.Core
	backlog backlog
}

// New returns a middleware, for a handler or for asynq.ServeMux.Use, that runs the handler under a
// lease on the key of the KeyFunc. guard.FromContext finds the lease in the handler's context. The
// lease is renewed until the handler has returned. This is true even after asynq has given the
// task up for its timeout, a lost lease of asynq's, or a shutdown. The handler's context ends
// then, and when the lease is lost (guard.ErrLost is the cause). WithBusy sets what happens to a
// task whose key is busy. A panic propagates, and leaves the key free.
//
// asynq gets what the handler returns. If the lease was lost and the handler returned an error,
// asynq gets a *guard.LostError around that. If the handler returned nil, the task is done, and
// hooks receive the loss.
//
// If the guard's store is unavailable, the handler does not run, and the task is postponed before
// its deadline. A run whose lease expired in an outage, or was revoked by Guard.Close, is
// postponed, too, if the handler returned its context's error (or wrapped it) and nothing else. Any
// other error costs an attempt, and so does a run that was lost for another reason, such as
// guard.WithMaxHold.
//
// Settings that cannot work are *guard.SettingError, all of them in one error. The Guard needs
// guard.WithNamespace or guard.WithoutNamespace. Neither Redis is asked. The Guard remains the
// caller's, to be closed after the server has shut down. The middleware can wrap several handlers
// and is safe for concurrent use. Give the server's Config to Configure.
func New(g *guard.Guard, key KeyFunc, opts ...Option) (asynq.MiddlewareFunc, error) {
	s := settings{key: key}
	s.Adapter, s.TTL, s.Unguarded, s.OfOne = "asynq", defaultTTL, ErrUnguarded, "WithTaskLease"
	refused.Apply(&s.List, &s, opts)
	s.check(g)
	core, err := claim.New(g, s.Settings)
	if err != nil {
		return nil, err
	}
	m := &middleware{settings: s, core: core}
	m.backlog.watch, m.backlog.look = m.watch, m.lookAt
	return m.wrap, nil
}

// requeues reports whether a task whose key is busy comes back later.
func (s *settings) requeues() bool { return s.busy == Requeue || s.busy == Coalesce }

// check looks at settings that have to fit each other.
func (s *settings) check(g *guard.Guard) {
	if s.key == nil { // one lease does for both
		s.key, s.onceBy = s.onceBy, nil
	}
	if s.Apart = s.onceBy != nil && s.Once > 0; s.key == nil {
		s.Refuse("key", nil, "must not be nil, unless WithOnce has one")
	}
	if s.client == nil {
		s.Refuse("WithClient", nil, "is needed, so that no task is archived because its key is busy or the store is away")
	}
	if s.busy == Coalesce && g != nil {
		if _, ok := g.Adapter().Ledger(); !ok {
			s.Refuse("WithBusy", "Coalesce", "needs a backend that keeps counters (driver.Ledger)")
		}
	}
	if s.busy == Coalesce && s.Once > 0 {
		s.Refuse("WithOnce", s.Once, "and Coalesce exclude each other: the run that follows would find the work done")
	}
}
