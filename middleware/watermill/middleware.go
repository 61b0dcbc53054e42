package guardwatermill

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/internal/claim"
	"github.com/seed-1795987d/onerun/middleware/internal/refused"
)

// middleware is what New makes.
type middleware struct {
	settings
	key  KeyFunc
	core *claim.Core
}

// New returns a middleware, for message.Router.AddMiddleware or for a single handler, that runs the
// handler under a lease on the key of the KeyFunc. guard.FromContext finds the lease in the context
// of the message, which is the one from before again after the handler. It ends when the lease is
// lost (guard.ErrLost is the cause). The lease is renewed until the handler has returned. A panic
// propagates, and leaves the key free and no marker.
//
// The router gets what the handler returns. If the lease was lost, it gets a *guard.LostError
// around that, and no messages: the message comes again, and another run may have its key. If the
// store cannot be asked for the done marker at the end, the router gets the messages, and hooks
// receive the *guard.MarkerError.
//
// Put middleware.Recoverer and middleware.PoisonQueue in front of it, so that a poisoned message
// leaves no marker, and middleware.Retry behind it, so that all tries are in one lease. IsPostponed
// tells a PoisonQueue which messages have not failed.
//
// Settings that cannot work are *guard.SettingError, all of them in one error. The Guard needs
// guard.WithNamespace or guard.WithoutNamespace. The Guard remains the caller's, to be closed after
// the router. The middleware is safe for concurrent use.
func New(g *guard.Guard, key KeyFunc, opts ...Option) (message.HandlerMiddleware, error) {
	s := settings{record: defaultRecord}
	s.Adapter, s.TTL, s.Wait, s.Unguarded = "watermill", defaultTTL, defaultWait, ErrUnguarded
	refused.Apply(&s.List, &s, opts)
	if key == nil {
		s.Refuse("key", nil, "must not be nil")
	}
	if s.busy == Skip && s.Once > 0 {
		s.Refuse("WithBusy", "Skip", "and WithOnce exclude each other: a delivery would end before the run of its message")
	}
	core, err := claim.New(g, s.Settings)
	if err != nil {
		return nil, err
	}
	m := &middleware{settings: s, key: key, core: core}
	return m.wrap, nil
}

func (m *middleware) wrap(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		return m.newDelivery(msg, next).process()
	}
}

// A PostponedError is a message that comes again although it has not failed. It was not handled,
// because its key was busy (guard.ErrBusy), the store was unavailable (guard.ErrStore), or its
// context ended while it waited. Or its lease was revoked by Guard.Close (guard.ErrClosed), or an
// outage of the store ended it, and the handler returned the error of its context (guard.ErrLost).
type PostponedError struct {
	Err error // as errors.Is finds it
}

func (e *PostponedError) Error() string { return fmt.Sprintf("guardwatermill: postponed: %v", e.Err) }

func (e *PostponedError) Unwrap() error { return e.Err }

// IsPostponed reports whether an error is that of a message which has not failed: it is a
// *PostponedError. Keep such messages from a poison queue:
//
//	middleware.PoisonQueueWithFilter(pub, "poison", func(err error) bool {
//		return !guardwatermill.IsPostponed(err)
//	})
func IsPostponed(err error) bool {
	var postponed *PostponedError
	return errors.As(err, &postponed)
}

type runKey struct{}

// Key returns the key of the message under which a handler runs, as the KeyFunc returned it, or ""
// if ctx is not that of a handler behind the middleware. The lease and its fence are in
// guard.FromContext and guard.Fence.
func Key(ctx context.Context) string {
	key, _ := ctx.Value(runKey{}).(string)
	return key
}
