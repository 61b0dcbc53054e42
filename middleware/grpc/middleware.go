package guardgrpc

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

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

// covers reports whether a key of a call of that method counts.
func (m *middleware) covers(method string) bool {
	return len(m.methods) == 0 || slices.Contains(m.methods, method)
}

// requires reports whether calls must have a key.
func (m *middleware) requires() bool { return len(m.methods) > 0 && !m.Optional }

func (m *middleware) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	q := &exchange{m: m, ctx: ctx, req: req, info: info, next: next, start: time.Now()}
	q.call.Core, q.call.Transport = m.core, q
	defer func() {
		q.call.Status = int(statusOf(q.err).Code())
		if q.call.Aborted {
			q.call.Status = int(codes.Unknown)
		}
		q.call.Report(ctx, q.start, nil)
	}()
	q.call.Serve(ctx)
	return q.reply, q.err
}
