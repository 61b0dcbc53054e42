package guardasynq

import (
	"context"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/hibiken/asynq"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/internal/refused"
)

// middleware is what New makes.
type middleware struct {
	settings
	guard   *guard.Guard
	opts    []guard.Option // of every lease
	name    string         // theirs, or ""
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
	refused.Apply(&s.List, &s, opts)
	s.check(g)
	m := &middleware{settings: s, guard: g}
	m.opts = append(m.opts, s.lease...)
	m.opts = append(m.opts, guard.WithWait(0), g.Adapter().Probe())
	m.backlog.watch, m.backlog.look = m.watch, m.lookAt
	if g != nil {
		if !g.Adapter().Given("WithTTL") {
			m.opts = append([]guard.Option{guard.WithTTL(defaultTTL)}, m.opts...)
		}
		m.Err = errors.Join(m.Err, g.Adapter().Check(s.refusedOptions(), s.lease...))
		m.name = g.Adapter().Name(m.opts...)
		for _, opts := range [][]guard.Option{m.opts, append(m.opts, guard.WithOnce(s.once), guard.WithLimit(0))} {
			if err := g.Check("asynq", opts...); err != nil {
				m.Err = errors.Join(m.Err, err)
				break
			}
		}
	}
	if m.Err != nil {
		return nil, m.Err
	}
	return m.wrap, nil
}

// requeues reports whether a task whose key is busy comes back later.
func (s *settings) requeues() bool { return s.busy == Requeue || s.busy == Coalesce }

// check looks at settings that have to fit each other.
func (s *settings) check(g *guard.Guard) {
	if g == nil {
		s.Refuse("guard", nil, "must not be nil")
	}
	if s.key == nil && s.onceBy == nil {
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
	if s.busy == Coalesce && s.once > 0 {
		s.Refuse("WithOnce", s.once, "and Coalesce exclude each other: the run that follows would find the work done")
	}
}

// refusedOptions returns the options of the leases that the middleware cannot honor, and why.
func (s *settings) refusedOptions() map[string]string {
	const owner = "cannot be that of all tasks, which would hold their keys together: use WithTaskLease"
	no := s.refusedOfTask()
	no["WithOwner"], no["WithOwnerFrom"] = owner, owner
	return no
}

// refusedOfTask is refusedOptions for the options of a single task.
func (s *settings) refusedOfTask() map[string]string {
	no := map[string]string{
		"WithWait": "has no effect here: WithWait of guardasynq sets how long a task waits",
		"WithOnce": "has no effect here: WithOnce of guardasynq keeps out repeats",
	}
	if s.key == nil {
		const alone = "needs a key in New: one task at a time holds the key of WithOnce"
		no["WithLimit"], no["WithShared"] = alone, alone
	}
	return no
}

func (m *middleware) wrap(next asynq.Handler) asynq.Handler {
	if next == nil {
		panic("guardasynq: the handler must not be nil")
	}
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		return m.deliver(ctx, task, next).process()
	})
}

// longestName is the longest name that guard.WithName takes.
const longestName = 128

// typeName returns the type of a task as a name.
func typeName(typename string) string {
	if len(typename) > longestName || strings.Contains(typename, "\x00") || !utf8.ValidString(typename) {
		return "asynq"
	}
	return typename
}
