package guardhttp

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/internal/refused"
)

// middleware is what New makes.
type middleware struct {
	settings
	guard   *guard.Guard
	name    string         // the kind of work
	once    []guard.Option // for a request that does not wait
	first   []guard.Option // for one that may wait
	waiting []guard.Option // for one that does
	queue   waiters
	breaker breaker // of WithFailOpen
}

// New returns a middleware that runs a handler once for each key: what it wraps is asked for a key
// by the KeyFunc, takes a lease on it, and runs under that, with a context in which
// guard.FromContext finds it. An Option says what becomes of requests whose key has been seen
// before; by default the first answer is replayed for 24 hours, and a request that comes while the
// first is under way is refused with status 409.
//
// The handler outlives its client: its context has the values of the request's and ends when the
// lease is lost (guard.ErrLost is the cause) or after WithMaxHold, so that a retry finds the
// answer. A panic goes on up, and leaves the key free.
//
// Settings that cannot work are *guard.SettingError, all of them in one error. WithScope or
// WithGlobalKeys is needed. The store is not asked. The Guard remains the caller's, to be closed
// after the server has shut down. The middleware can wrap several handlers and is safe for
// concurrent use.
func New(g *guard.Guard, key KeyFunc, opts ...Option) (func(http.Handler) http.Handler, error) {
	s := settings{
		key:        key,
		waiters:    defaultWaiters,
		keyWaiters: defaultKeyWaiters,
		maxBody:    defaultMaxBody,
		maxAnswer:  defaultMaxAnswer,
		policy:     KeepFinal,
		replayed:   defaultReplayed,
		retention:  defaultOnce,
		timeout:    defaultMaxHold,
		retryAfter: time.Second,
		patience:   shadowPatience,
		docs:       defaultDocs,
		onProblem:  func(w http.ResponseWriter, r *http.Request, p Problem) { p.ServeHTTP(w, r) },
	}
	refused.Apply(&s.List, &s, opts)
	s.check(g)
	m := &middleware{settings: s, guard: g, breaker: breaker{epoch: time.Now()}}
	m.once = append(slices.Clone(s.lease), guard.WithWait(0))
	m.waiting = append(slices.Clone(s.lease), guard.WithWait(s.wait))
	if s.mode != Exclusive {
		m.once = append(m.once, guard.WithOnce(s.retention))
		m.waiting = append(m.waiting, guard.WithOnce(s.retention))
	}
	m.first = slices.Clone(m.once)
	if s.wait > 0 {
		m.first = append(m.first, g.Adapter().Probe())
	}
	m.queue = waiters{most: s.waiters, perKey: s.keyWaiters, keys: map[string]int{}}
	if g != nil {
		if m.name = g.Adapter().Name(s.lease...); m.name == "" {
			m.name = defaultName
			for _, opts := range []*[]guard.Option{&m.once, &m.first, &m.waiting} {
				*opts = append(*opts, guard.WithName(defaultName))
			}
		}
		_, err := g.Wrap("http", func(context.Context) error { return nil }, m.once...)
		m.Err = errors.Join(m.Err, err)
	}
	if m.Err != nil {
		return nil, m.Err
	}
	return m.wrap, nil
}

// check looks at settings that have to fit each other.
func (s *settings) check(g *guard.Guard) {
	if g == nil {
		s.Refuse("guard", nil, "must not be nil")
	}
	if s.key == nil {
		s.Refuse("key", nil, "must not be nil")
	}
	switch {
	case s.scope == nil && !s.global:
		s.Refuse("WithScope", nil, "is needed, so that nobody gets the answer of somebody else; WithGlobalKeys says that keys are the same for all")
	case s.scope != nil && s.global:
		s.Refuse("WithGlobalKeys", nil, "and WithScope exclude each other")
	}
	if s.mode == Exclusive && s.print != nil {
		s.Refuse("WithFingerprint", nil, "has no effect in Exclusive mode, which remembers nothing")
	}
	if s.mode == Exclusive && s.sealer != nil {
		s.Refuse("WithEncryption", nil, "has no effect in Exclusive mode, which keeps nothing")
	}
}

// prints reports whether there are fingerprints.
func (s *settings) prints() bool {
	return s.print != nil || s.mode == Replay && !s.noPrint
}

func validDocs(page string) bool {
	u, err := url.Parse(page)
	return err == nil && u.IsAbs() && !strings.ContainsAny(page, `<>"# `) && validValue(page)
}

// covers reports whether a key of a request of that method counts.
func (m *middleware) covers(method string) bool {
	if len(m.methods) > 0 {
		return slices.Contains(m.methods, method)
	}
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, "QUERY":
		return false
	}
	return true
}

// requires reports whether requests of that method must have a key. The draft speaks of POST and
// PATCH.
func (m *middleware) requires(method string) bool {
	if m.optional {
		return false
	}
	return len(m.methods) > 0 || method == http.MethodPost || method == http.MethodPatch
}

func (m *middleware) wrap(next http.Handler) http.Handler {
	if next == nil {
		panic("guardhttp: the handler must not be nil")
	}
	if isTimeoutHandler(next) {
		panic("guardhttp: http.TimeoutHandler must be outside of the middleware: inside, it answers while its handler still runs")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := &exchange{m: m, next: next, w: w, r: r, start: time.Now()}
		q.outcome.Aborted = true // until it has returned
		defer q.report()
		defer q.handBack()
		q.serve()
		q.outcome.Aborted = false
	})
}
