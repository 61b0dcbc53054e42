package idempotent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

const (
	// openPatience is how long a call waits for the store if it can run without a lease.
	openPatience = 250 * time.Millisecond
	// openPause is how long the store is not asked again after it has not answered.
	openPause = time.Second
)

// patience returns how long a call waits for the store if it can run without a lease: half of what
// is left of its own time is for the handler.
func patience(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return min(openPatience, time.Until(deadline)/2)
	}
	return openPatience
}

// isAway reports whether a store error means that the store is away for the moment. A store that
// refuses is not: it has no room for the claim, for example, or the rights are missing. Nor is a
// quorum of which a node refuses.
func isAway(err error) bool {
	var store *guard.StoreError
	if !errors.As(err, &store) {
		return errors.Is(err, guard.ErrStore)
	}
	switch store.Kind {
	case driver.KindOOM, driver.KindNotPersisted, driver.KindReadOnly, driver.KindRestarted, driver.KindNoReplicas,
		driver.KindAuth, driver.KindWrongType, driver.KindUnsupported, driver.KindProtocol, driver.KindSettings:
		return false
	case driver.KindQuorum: // a client that fills a node must not gain by others that are away
		var nodes interface{ Unwrap() []error }
		return !errors.As(store.Err, &nodes) || !slices.ContainsFunc(nodes.Unwrap(), refuses)
	case driver.KindOther:
		return !isReply(store.Err)
	default:
		return true
	}
}

// refuses reports whether the error of a node is that of one that has answered.
func refuses(err error) bool { return !isAway(err) }

// isReply reports whether an error is one that a server has answered, as go-redis and the drivers
// of PostgreSQL have it.
func isReply(err error) bool {
	var redis interface {
		error
		RedisError()
	}
	var postgres interface {
		error
		SQLState() string
	}
	return errors.As(err, &redis) || errors.As(err, &postgres)
}

// A breaker keeps calls that can run without a lease (WithFailOpen) from asking a store that does
// not answer: after each pause, one call asks. A client must not turn off the leases of others, so
// a call that its client has ended proves nothing. Nor does one that has waited for less than
// openPatience, because clients choose their deadlines.
type breaker struct {
	epoch time.Time
	next  atomic.Int64 // when to ask again, in nanoseconds since the epoch; 0 if the store answers
	open  error        // for calls that do not ask
}

// allows reports whether to ask the store. probe is not 0 if the call asks for the others, too.
func (b *breaker) allows() (probe int64, ok bool) {
	now := int64(time.Since(b.epoch))
	next := b.next.Load()
	if next == 0 {
		return 0, true
	}
	probe = now + int64(openPause)
	return probe, now >= next && b.next.CompareAndSwap(next, probe)
}

// answered notes that the store has answered.
func (b *breaker) answered() {
	if b.next.Load() != 0 {
		b.next.Store(0)
	}
}

// failed notes that the store has not answered.
func (b *breaker) failed() { b.next.Store(int64(time.Since(b.epoch) + openPause)) }

// ended notes that a call has ended without proof. If it was a probe, the next call asks.
func (b *breaker) ended(probe int64) {
	if probe != 0 {
		b.next.CompareAndSwap(probe, int64(time.Since(b.epoch)))
	}
}

// note notes the result of an attempt to acquire the lease. request is the error of its last
// request to the store. whole says that the call would have waited for openPatience.
func (b *breaker) note(err, request error, whole bool, probe int64) {
	var marker *guard.MarkerError
	late := isLate(err)
	switch {
	case errors.As(err, &marker): // at the end of the run
		if isAway(marker.Err) {
			b.failed()
		}
	case errors.Is(err, guard.ErrBusy), errors.Is(err, guard.ErrDone), request != nil && !isAway(request):
		b.answered()
	case late && whole, !late && isAway(err):
		b.failed()
	default:
		b.ended(probe)
	}
}

// isLate reports whether the error of an attempt says that its time was over.
func isLate(err error) bool {
	var store *guard.StoreError
	return errors.Is(err, errNoAnswer) || errors.As(err, &store) && store.Kind == driver.KindTimeout
}

// attemptBriefly is attempt for the first attempt of a call that can run without a lease. It does
// not wait long for the store.
func (c *Call) attemptBriefly(ctx context.Context, opts []guard.Option) error {
	probe, ok := c.Core.breaker.allows()
	if !ok {
		return c.Core.breaker.open
	}
	c.probe = probe
	c.limit = patience(ctx)
	defer func() { c.limit = 0 }()
	return c.attempt(ctx, opts)
}

// errNoAnswer ends an attempt whose store does not answer.
var errNoAnswer = errors.New("no answer")

// noAnswer returns the error of an attempt that errNoAnswer has ended.
func (c *Call) noAnswer() error {
	if err := c.claims.Err(); err != nil && !isAway(err) {
		return err
	}
	return fmt.Errorf("%s: %w: %w within %v", c.Core.Adapter.Package(), guard.ErrStore, errNoAnswer, c.limit)
}

// giveBack says that the handler has ended, or does not run. What the store may have granted to a
// call that has no lease is then released.
func (c *Call) giveBack() {
	if c.claims != nil {
		c.claims.End()
	}
}
