package guardjetstream

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/internal/claim"
)

const (
	// defaultTTL is also how long a message of a dead process waits for its key.
	defaultTTL = 15 * time.Second
	// defaultAckWait is the server's.
	defaultAckWait = 30 * time.Second
	// maxPause bounds the default of WithRetryDelay.
	maxPause = time.Minute
)

// A BusyPolicy says what happens to a message whose key another run holds.
type BusyPolicy int

// The policies.
const (
	// Requeue makes the message come back: NakWithDelay. If the consumer has a MaxDeliver, a
	// delivery costs an attempt. The message then waits with its consumer instead, which handles
	// no other message of that Consume meanwhile.
	Requeue BusyPolicy = iota
	// Skip acknowledges the message: the run under way does the work of both. If that run fails,
	// the message is lost, so another one should come soon. New refuses Skip with WithOnce and with
	// the key of a single message (nil): the server may deliver that message again while its run
	// goes on, and would then forget it.
	Skip
	// Fail treats the message as one whose handler has failed.
	Fail
)

// An Option is a setting of New. New refuses a setting that cannot work.
type Option func(*settings)

// settings are what the options have set.
type settings struct {
	claim.Settings

	key      KeyFunc
	consumer Consumer
	busy     BusyPolicy
	retry    func(jetstream.Msg, error) time.Duration

	ackWait time.Duration // of the consumer: the shortest
	backOff []time.Duration
	limited bool // the consumer has a MaxDeliver
}

// A Consumer is a jetstream.Consumer or a jetstream.PushConsumer.
type Consumer interface {
	CachedInfo() *jetstream.ConsumerInfo
}

// WithConsumer sets the consumer whose messages the handlers get. New needs it, for its AckWait,
// BackOff and MaxDeliver, and asks no server. Its AckPolicy must be AckExplicitPolicy: with
// AckAllPolicy, one acknowledgement would acknowledge messages whose handlers have failed. If the
// consumer's configuration changes, make a new middleware.
func WithConsumer(c Consumer) Option {
	return func(s *settings) { s.consumer = c }
}

// WithGroup makes several consumers share their keys, if their middlewares name the same group.
// With WithOnce, it is for consumers that do the same work. The key of New has to identify the
// work: one of FromMessage identifies a message in its stream. Defaults to "", no group: each
// consumer of a stream has keys of its own.
func WithGroup(name string) Option {
	return func(s *settings) { s.WithGroup(name) }
}

// WithBusy sets what happens to a message whose key another run holds. Defaults to Requeue.
func WithBusy(b BusyPolicy) Option {
	return func(s *settings) {
		if b < Requeue || b > Fail {
			s.Refuse("WithBusy", int(b), "is none of Requeue, Skip and Fail")
		}
		s.busy = b
	}
}

// WithDelay postpones a message that did not run by d, and up to a quarter more, so that not all of
// them come back at once. Defaults to what is left of the lease of the run that holds the key, at
// most a minute, and to 5 s if the store is unavailable. At most ten years.
func WithDelay(d time.Duration) Option {
	return func(s *settings) { s.WithDelay(d, claim.LongestDelay) }
}

// WithRetryDelay sets after which time a message comes back whose handler has failed with err.
// Defaults to the BackOff of the consumer. If it has none, that is 1 s after the first delivery and
// twice as long after each further one, up to a minute.
func WithRetryDelay(f func(msg jetstream.Msg, err error) time.Duration) Option {
	return func(s *settings) {
		if f == nil {
			s.Refuse("WithRetryDelay", nil, "must not be nil")
		}
		s.retry = f
	}
}

// WithWait lets a message wait for its key for up to d before WithBusy decides. The next message of
// that Consume waits, too. Defaults to 0.
func WithWait(d time.Duration) Option {
	return func(s *settings) { s.WithWait(d) }
}

// WithOnce keeps out repeats for the window after a run whose handler returned nil: a message with
// the same key is acknowledged without a run. Defaults to no marker.
func WithOnce(window time.Duration) Option {
	return func(s *settings) { s.WithOnce(window) }
}

// WithLease sets options of the leases, such as guard.WithTTL and guard.WithMaxHold. Refused, here
// and in guard.New, are guard.WithWait and guard.WithOnce (use WithWait and WithOnce), and
// guard.WithOwner. With WithOnce, guard.WithLimit and guard.WithShared are refused, too. Defaults
// to the options of the Guard, with a TTL of 15 s if guard.New was given none.
func WithLease(opts ...guard.Option) Option {
	return func(s *settings) { s.WithLease(opts) }
}
