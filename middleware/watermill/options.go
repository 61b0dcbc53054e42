package guardwatermill

import (
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/internal/claim"
)

const (
	// defaultTTL is shorter than defaultWait, so that a message that comes again after its
	// consumer has died finds the key free while it waits.
	defaultTTL    = 15 * time.Second
	defaultWait   = 20 * time.Second
	defaultDelay  = time.Second
	defaultRecord = guard.MaxRecord
	maxDelay      = time.Hour
)

// An Option is a setting of New. New refuses a setting that cannot work.
type Option func(*settings)

// settings are what the options have set.
type settings struct {
	claim.Settings

	busy   BusyPolicy
	record int
}

// A BusyPolicy sets what happens to a message whose key is still busy after WithWait.
type BusyPolicy int

const (
	// Requeue returns the message to the broker, which delivers it again. The error is a
	// *PostponedError.
	Requeue BusyPolicy = iota
	// Skip acknowledges the message: the run that holds the key does the work of both. If that run
	// fails, the message is lost: it may be another delivery of the one that is being handled. Skip
	// is for messages that come often and say the same, such as "refresh customer 7". New refuses
	// it with WithOnce.
	Skip
	// Fail fails the message with the *guard.BusyError, so that a middleware.PoisonQueue takes it.
	Fail
)

// WithOnce keeps out repeats for the window after a run whose handler returned nil. A message that
// comes in the window is not handled. The messages that the first run has produced are published
// again, with the same UUIDs, metadata and payloads: that run may have ended before it could
// publish them. Consumers of these messages find repeats by the UUID (FromUUID). Defaults to no
// marker: one message of a key is handled at a time.
func WithOnce(window time.Duration) Option {
	return func(s *settings) { s.WithOnce(window) }
}

// WithMaxRecord sets how many bytes of produced messages are kept for repeats. If a handler
// produces more, they are published, and there is no marker: the next delivery of the message is
// handled again, and hooks receive guard.Outcome.Refused. Defaults to 1 MiB, the maximum.
func WithMaxRecord(bytes int) Option {
	return func(s *settings) { s.Between(&s.record, "WithMaxRecord", bytes, 1, guard.MaxRecord) }
}

// WithBusy sets what happens to a message whose key is still busy after WithWait. Defaults to
// Requeue.
func WithBusy(b BusyPolicy) Option {
	return func(s *settings) {
		if b < Requeue || b > Fail {
			s.Refuse("WithBusy", int(b), "is none of Requeue, Skip and Fail")
		}
		s.busy = b
	}
}

// WithWait sets how long a message waits for its key, before WithBusy decides. Set it to less than
// the time after which the broker delivers a message again, which is AckWait, the visibility
// timeout or consumer_timeout. The end of the message's context ends the wait. Defaults to 20 s.
func WithWait(d time.Duration) Option {
	return func(s *settings) { s.WithWait(d) }
}

// WithDelay sets how long a message that was not handled stays here before it goes back to the
// broker, which may deliver it again at once. Its key was busy, the store was unavailable, or it
// has no key. Defaults to 1 s. At most an hour.
func WithDelay(d time.Duration) Option {
	return func(s *settings) { s.WithDelay(d, maxDelay) }
}

// WithGroup makes several handlers share their keys, if their middlewares name the same group. With
// WithOnce, a handler then publishes what another one has produced, so it is for handlers that do
// the same work. Defaults to "", no group: each handler has keys of its own, by its name in the
// router.
func WithGroup(name string) Option {
	return func(s *settings) { s.WithGroup(name) }
}

// WithLease sets options of the leases, such as guard.WithTTL and guard.WithHook. guard.WithFair
// orders messages that wait, and guard.WithLimit(n) allows up to n messages of a key at a time,
// unless there is WithOnce. guard.WithMaxHold frees the key of a handler that hangs.
//
// What cannot work is refused, here and in guard.New: guard.WithWait and guard.WithOnce (use
// WithWait and WithOnce), guard.WithOwner and guard.WithOwnerFrom. If the Guard has no name, the
// name is that of the handler. Defaults to the options of the Guard, with a TTL of 15 s if
// guard.New was given none.
func WithLease(opts ...guard.Option) Option {
	return func(s *settings) { s.WithLease(opts) }
}
