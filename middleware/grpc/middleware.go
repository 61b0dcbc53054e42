package guardgrpc

import (
	"google.golang.org/grpc"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/internal/idempotent"
)

// middleware is what New makes.
type middleware struct {
	settings
	core *idempotent.Core
}

// New returns an interceptor that runs a handler once for each key. It asks the KeyFunc for the
// call's key, acquires a lease on it, and runs the handler under that lease, in a context in which
// guard.FromContext finds it. The Options say what happens to calls whose key has been seen
// before. By default, they get the first reply again for 24 hours. A call that comes while the
// first one runs is refused with ABORTED.
//
// The handler outlives its client: its context has the values of the call's context. It ends when
// the lease is lost (guard.ErrLost is the cause) or after WithMaxHold, and not with the call, so
// that a retry finds the reply. A panic propagates and leaves the key free.
//
// Settings that cannot work are *guard.SettingError, all of them in one error. WithScope or
// WithGlobalKeys is needed. So is guard.WithNamespace or guard.WithoutNamespace in guard.New: a
// client of one service must not get the answer of another. The store is not asked. The Guard
// remains the caller's, to be closed after the server has stopped. The interceptor is safe for
// concurrent use. Streaming calls do not reach it.
func New(g *guard.Guard, key KeyFunc, opts ...Option) (grpc.UnaryServerInterceptor, error) {
	s := settings{
		Settings: idempotent.Defaults(idempotent.GRPC),
		key:      key,
		policy:   KeepFinal,
	}
	idempotent.Apply[option](&s.Settings, &s, opts)
	s.Check(g, s.key != nil, s.scope != nil)
	m := &middleware{settings: s}
	var err error
	if m.core, err = idempotent.New(g, &m.Settings); err != nil {
		return nil, err
	}
	return m.intercept, nil
}
