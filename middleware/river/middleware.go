package guardriver

import (
	"context"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/riverqueue/river/rivertype"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/internal/refused"
)

// middleware is what New makes.
type middleware struct {
	settings
	guard *guard.Guard
	opts  []guard.Option // of every lease
	name  string         // theirs, or ""
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
	refused.Apply(&s.List, &s, opts)
	if g == nil {
		s.Refuse("guard", nil, "must not be nil")
	}
	if s.key == nil && s.onceBy == nil {
		s.Refuse("key", nil, "must not be nil, unless WithOnce has one")
	}
	m := &middleware{settings: s, guard: g}
	if g != nil {
		m.setLease(g)
	}
	if m.Err != nil {
		return nil, m.Err
	}
	return m, nil
}

// setLease sets the options of every lease, and refuses those that cannot work.
func (m *middleware) setLease(g *guard.Guard) {
	a := g.Adapter()
	if !a.Given("WithTTL") {
		m.opts = append(m.opts, guard.WithTTL(defaultTTL))
	}
	m.opts = append(append(m.opts, m.lease...), guard.WithWait(0), a.Probe())
	m.Err = errors.Join(m.Err, a.Check(m.refusedOptions(), m.lease...))
	m.name = a.Name(m.opts...)
	for _, opts := range [][]guard.Option{m.opts, append(m.opts, guard.WithOnce(m.once), guard.WithLimit(0))} {
		if err := g.Check("river", opts...); err != nil {
			m.Err = errors.Join(m.Err, err)
			break
		}
	}
}

// refusedOptions returns the options of the leases that the middleware cannot honor, and why.
func (s *settings) refusedOptions() map[string]string {
	const owner = "cannot be that of all jobs, which would hold their keys together: use WithJobLease"
	no := s.refusedOfJob()
	no["WithOwner"], no["WithOwnerFrom"] = owner, owner
	return no
}

// refusedOfJob is refusedOptions for the options of a single job.
func (s *settings) refusedOfJob() map[string]string {
	no := map[string]string{
		"WithWait": "has no effect here: WithWait of guardriver sets how long a job waits",
		"WithOnce": "has no effect here: WithOnce of guardriver keeps out repeats",
	}
	if s.key == nil {
		const alone = "needs a key in New: one job at a time holds the key of WithOnce"
		no["WithLimit"], no["WithShared"] = alone, alone
	}
	return no
}

// IsMiddleware marks the middleware for River.
func (m *middleware) IsMiddleware() bool { return true }

// IsPlugin marks the middleware for river.Config.Plugins.
func (m *middleware) IsPlugin() bool { return true }

// Work runs a job, or has River run it later.
func (m *middleware) Work(ctx context.Context, job *rivertype.JobRow, doInner func(context.Context) error) error {
	return m.newAttempt(ctx, job, doInner).work()
}

// maxName is the length of the longest name that guard.WithName takes.
const maxName = 128

// kindName returns the kind of a job as a name.
func kindName(kind string) string {
	if len(kind) > maxName || strings.Contains(kind, "\x00") || !utf8.ValidString(kind) {
		return "river"
	}
	return kind
}
