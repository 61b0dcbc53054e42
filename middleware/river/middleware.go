package guardriver

import (
	"context"

	"github.com/riverqueue/river/rivertype"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/internal/claim"
	"github.com/seed-1795987d/onerun/middleware/internal/refused"
)

// middleware is what New makes.
type middleware struct {
	settings
	core *claim.Core
}

var (
	_ rivertype.WorkerMiddleware = (*middleware)(nil)
	_ rivertype.Plugin           = (*middleware)(nil)
)

// New returns a middleware, for river.Config or for the Middleware method of a worker, that works a
// job under a lease on the key of the KeyFunc. guard.FromContext finds the lease in the worker's
// context. The lease is renewed until the worker has returned. This is true even after River has
// canceled the job for its timeout, taken it for stuck, or given it to another client. When the
// lease is lost, the worker's context ends, and guard.ErrLost is the cause. WithBusy sets what
// happens to a job whose key is busy. A panic propagates, and leaves the key free.
//
// River gets what the worker returns. If the lease was lost during the run, River gets a
// *guard.LostError, even if the worker returned nil, and retries the job, unless the worker has
// completed it (river.JobCompleteTx).
//
// If the guard's store is unavailable, the worker does not run, and the job is snoozed. A run whose
// lease expired in an outage, or was revoked by Guard.Close, is snoozed, too, if the worker
// returned its context's error (or wrapped it) and nothing else. Any other error costs an attempt,
// and so does a run that was lost for another reason, such as guard.WithMaxHold.
//
// Settings that cannot work are *guard.SettingError, all of them in one error. The Guard needs
// guard.WithNamespace or guard.WithoutNamespace. The store is not asked. The Guard remains the
// caller's, to be closed after the client has stopped. The middleware is safe for concurrent use,
// also in several clients.
func New(g *guard.Guard, key KeyFunc, opts ...Option) (rivertype.WorkerMiddleware, error) {
	s := settings{key: key}
	s.Adapter, s.TTL, s.Unguarded, s.OfOne = "river", defaultTTL, ErrUnguarded, "WithJobLease"
	refused.Apply(&s.List, &s, opts)
	if s.key == nil { // one lease does for both
		s.key, s.onceBy = s.onceBy, nil
	}
	if s.Apart = s.onceBy != nil && s.Once > 0; s.key == nil {
		s.Refuse("key", nil, "must not be nil, unless WithOnce has one")
	}
	core, err := claim.New(g, s.Settings)
	if err != nil {
		return nil, err
	}
	return &middleware{settings: s, core: core}, nil
}

// IsMiddleware marks the middleware for River.
func (m *middleware) IsMiddleware() bool { return true }

// IsPlugin marks the middleware for river.Config.Plugins.
func (m *middleware) IsPlugin() bool { return true }

// Work runs a job, or has River run it later.
func (m *middleware) Work(ctx context.Context, job *rivertype.JobRow, doInner func(context.Context) error) error {
	return m.newAttempt(ctx, job, doInner).work()
}
