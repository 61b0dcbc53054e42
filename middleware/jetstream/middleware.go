package guardjetstream

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/internal/claim"
	"github.com/seed-1795987d/onerun/middleware/internal/refused"
)

// A Handler handles a message. Its context ends when the lease is lost. guard.FromContext finds the
// lease in it. The middleware acknowledges the message, so the handler does not.
type Handler func(ctx context.Context, msg jetstream.Msg) error

// A Middleware makes a jetstream.MessageHandler of a Handler. It panics if that is nil.
type Middleware func(Handler) jetstream.MessageHandler

// ErrTerminate is what a handler or a KeyFunc returns, or wraps, for a message that never succeeds.
// The server does not deliver it again (TermWithReason).
var ErrTerminate = errors.New("guardjetstream: the message is terminated")

// middleware is what New makes.
type middleware struct {
	settings
	core *claim.Core
}

// New returns a middleware that runs a handler under a lease on the key of the KeyFunc, and then
// acknowledges the message. If the KeyFunc is nil, it is FromMessage. A panic propagates. It leaves
// the key free, no marker and no acknowledgement, so the server delivers the message again.
//
// If the handler returned nil, the message is acknowledged, even if the lease was lost meanwhile:
// hooks receive the loss. If the store is unavailable, the handler does not run, and the message
// comes back.
//
// Settings that cannot work are *guard.SettingError, all of them in one error. The Guard needs
// guard.WithNamespace or guard.WithoutNamespace. No server is asked. The Guard remains the
// caller's: close it after the jetstream.ConsumeContext has closed. The middleware can make
// several handlers and is safe for concurrent use.
func New(g *guard.Guard, key KeyFunc, opts ...Option) (Middleware, error) {
	s := settings{key: key, Settings: claim.Settings{Adapter: "jetstream", TTL: defaultTTL, Unguarded: ErrUnguarded}}
	if key == nil {
		s.key = FromMessage()
	}
	refused.Apply(&s.List, &s, opts)
	s.readConsumer()
	if s.busy == Skip && (key == nil || s.Once > 0) {
		s.Refuse("WithBusy", "Skip", "needs a KeyFunc and excludes WithOnce: a delivery of the message whose run goes on would be acknowledged, although that run may fail")
	}
	core, err := claim.New(g, s.Settings)
	if err != nil {
		return nil, err
	}
	return (&middleware{settings: s, core: core}).wrap, nil
}

// readConsumer sets what the consumer's configuration decides.
func (s *settings) readConsumer() {
	var info *jetstream.ConsumerInfo
	if s.consumer != nil {
		info = s.consumer.CachedInfo()
	}
	if info == nil {
		s.Refuse("WithConsumer", nil, "is needed, for the AckWait of the messages")
		return
	}
	c := info.Config
	if c.AckPolicy != jetstream.AckExplicitPolicy {
		s.Refuse("WithConsumer", c.AckPolicy, "must have AckExplicitPolicy")
	}
	s.ackWait, s.backOff, s.limited = c.AckWait, c.BackOff, c.MaxDeliver > 0
	if s.ackWait <= 0 {
		s.ackWait = defaultAckWait
	}
	for _, d := range c.BackOff { // a delivery has one of these as its AckWait
		s.ackWait = min(s.ackWait, d)
	}
	if s.retry == nil {
		s.retry = func(msg jetstream.Msg, _ error) time.Duration {
			if len(c.BackOff) > 0 {
				return s.step(msg)
			}
			return min(time.Second<<min(earlier(msg), 10), maxPause)
		}
	}
}

// earlier returns how often the server has delivered the message before.
func earlier(msg jetstream.Msg) int {
	meta, err := msg.Metadata()
	if err != nil {
		return 0
	}
	return int(min(max(meta.NumDelivered, 1)-1, 1000)) //nolint:gosec // bounded
}

// step returns the step of the consumer's BackOff that a delivery has, or 0.
func (s *settings) step(msg jetstream.Msg) time.Duration {
	if len(s.backOff) == 0 {
		return 0
	}
	return s.backOff[min(earlier(msg), len(s.backOff)-1)]
}

func (m *middleware) wrap(next Handler) jetstream.MessageHandler {
	if next == nil {
		panic("guardjetstream: the handler must not be nil")
	}
	return func(msg jetstream.Msg) { m.newDelivery(msg, next).deliver() }
}

type runKey struct{}

// Key returns the key of the message under which a handler runs, as the KeyFunc returned it, or ""
// if ctx is not that of a handler behind the middleware. The lease and its fence are in
// guard.FromContext and guard.Fence.
func Key(ctx context.Context) string {
	key, _ := ctx.Value(runKey{}).(string)
	return key
}
