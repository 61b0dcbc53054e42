package guardhttp

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/internal/idempotent"
)

// middleware is what New makes.
type middleware struct {
	settings
	core *idempotent.Core
}

// New returns a middleware that runs a handler once for each key. It asks the KeyFunc for the key
// of a request, acquires a lease on it, and runs the handler. guard.FromContext finds the lease in
// the handler's context.
//
// An Option sets what happens to a request whose key has been seen before. By default, the first
// answer is replayed for 24 hours. A request that comes while the first one runs is refused with
// status 409.
//
// The handler outlives its client, so that a retry finds the answer. Its context has the values of
// the request's. It ends when the lease is lost (guard.ErrLost is the cause), or after
// WithMaxHold. A panic propagates, and leaves the key free.
//
// Settings that cannot work are *guard.SettingError, all of them in one error. WithScope or
// WithGlobalKeys is needed. So is guard.WithNamespace or guard.WithoutNamespace in guard.New: a
// client of one service must not get the answer of another. The store is not asked. The Guard
// remains the caller's, to be closed after the server has shut down. The middleware can wrap
// several handlers and is safe for concurrent use.
func New(g *guard.Guard, key KeyFunc, opts ...Option) (func(http.Handler) http.Handler, error) {
	s := settings{
		Settings:  idempotent.Defaults(idempotent.HTTP),
		key:       key,
		maxBody:   defaultMaxBody,
		policy:    KeepFinal,
		docs:      defaultDocs,
		onProblem: func(w http.ResponseWriter, r *http.Request, p Problem) { p.ServeHTTP(w, r) },
	}
	idempotent.Apply[option](&s.Settings, &s, opts)
	s.Check(g, s.key != nil, s.scope != nil)
	m := &middleware{settings: s}
	var err error
	if m.core, err = idempotent.New(g, &m.Settings); err != nil {
		return nil, err
	}
	return m.wrap, nil
}

func validDocs(page string) bool {
	u, err := url.Parse(page)
	return err == nil && u.IsAbs() && !strings.ContainsAny(page, `<>"# `) && validValue(page)
}
