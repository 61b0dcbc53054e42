package guard

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/internal/clock"
	"github.com/seed-1795987d/onerun/guard/internal/jitter"
	"github.com/seed-1795987d/onerun/guard/internal/queue"
	"github.com/seed-1795987d/onerun/internal/lazyctx"
)

// A Guard runs work once at a time, or once in a window, across all processes that share its
// store. It is safe for concurrent use. One Guard is enough for a process: what differs between
// kinds of work are the options of a call.
type Guard struct {
	backend
	byDefault    hooks           // the hooks if New was given none
	set          *settings       // the options of New
	given        map[string]bool // the options that New was given, see settings
	clock        *clock.Clock
	jitter       *jitter.Source
	closing      *lazyctx.Stop // ended by Close, under mu
	calls        atomic.Int64  // calls to the Locker under way
	background   tasks         // the Guard's own goroutines
	reporter     reporter
	cleaner      cleaner
	broken       brokenLeases
	renewers     chan struct{} // renewals under way, if the Locker is no Async
	stopCalls    *lazyctx.Stop // ends calls to the store: Close waits for them no longer
	stopRenewals *lazyctx.Stop // ends renewals: Close has nothing left to renew
	active       tasks         // acquisitions under way, and holders

	// mu guards what follows, and the state of every storeLease and holder.
	mu       sync.Mutex
	schedule schedule
	warning  warning
	queues   *queue.Queues[*acquisition]
	shared   map[string]*storeLease // by key, the newest that shared calls may join
	// watches and deferrals are what Close ends, with the functions that do so. Deferrals are here
	// while they have orphans.
	watches, deferrals map[any]func()
}

// New returns a Guard over the Locker. It does not ask the store: a store that cannot be reached
// shows at the first call, as a *StoreError. A setting that cannot work is a *SettingError that
// names it.
//
// Call Close before the process ends, so that keys that are held then are free at once.
func New(locker Locker, opts ...Option) (*Guard, error) {
	if driver.IsNil(locker) {
		return nil, &SettingError{Setting: "locker", Reason: "must not be nil"}
	}
	backend := newBackend(locker)
	if err := backend.facts.Err; err != nil {
		return nil, err
	}
	given := map[string]bool{}
	set, err := (&settings{ttl: DefaultTTL, label: defaultLabel(), given: given}).with(opts)
	if err != nil {
		return nil, err
	}
	set.given = nil // the options of calls are not noted
	g := &Guard{
		backend:      backend,
		set:          set,
		given:        given,
		clock:        clock.New(),
		jitter:       jitter.New(),
		closing:      lazyctx.NewStop(),
		renewers:     make(chan struct{}, renewersAtOnce),
		stopCalls:    lazyctx.NewStop(),
		stopRenewals: lazyctx.NewStop(),
		watches:      map[any]func(){}, deferrals: map[any]func(){}, shared: map[string]*storeLease{},
	}
	g.schedule.guard, g.schedule.wake = g, make(chan struct{}, 1)
	g.reporter.tasks = &g.background
	g.cleaner.init(g)
	if len(set.hooks) == 0 {
		g.byDefault = hooks{new(defaultLog).hook(g)}
	}
	if slices.ContainsFunc(g.reportingHooks(set), func(h Hook) bool { return h.Warn != nil }) {
		g.warning.store, _ = locker.(driver.Warner)
	}
	g.queues = queue.New[*acquisition](g.jitter, g.notifies())
	if err := g.check(set); err != nil {
		return nil, err
	}
	return g, nil
}

func defaultLabel() string {
	host, err := os.Hostname()
	if err != nil || len(host) > maxName {
		host = "unknown"
	}
	return fmt.Sprintf("%s pid %d", host, os.Getpid())
}

// check returns a *SettingError if set asks for what the backend cannot do.
func (g *Guard) check(set *settings) error {
	if set.fair && !g.facts.Queue {
		return &SettingError{Setting: "WithFair", Reason: fmt.Sprintf(
			"the backend (%T) keeps no queue of waiters; backend/memory, single and reentrant do", g.locker)}
	}
	switch {
	case set.maxHolders <= 1:
		return nil
	case g.facts.Shares == nil:
		return &SettingError{Setting: set.sharingOption(), Reason: fmt.Sprintf("the backend (%T) grants a key to one claim at a time", g.locker)}
	}
	return g.facts.Shares(set.maxHolders)
}

// prepare returns the settings of a call, and the key by which the store knows it.
func (g *Guard) prepare(key string, opts []Option) (set *settings, stored string, err error) {
	if set = g.set; len(opts) > 0 {
		if set, err = set.with(opts); err == nil {
			err = g.check(set)
		}
		if err != nil {
			return set, "", err
		}
	}
	stored, err = set.stored(key, g.facts.CheckKey)
	return set, stored, err
}

// queueID returns the queue in which calls with these settings wait for the key.
func (g *Guard) queueID(stored string, set *settings) queue.ID {
	if !g.facts.Owners {
		return queue.ID{Key: stored}
	}
	return queue.ID{Key: stored, Owner: set.owner}
}

// detached returns the context for calls to the Locker that no caller waits for.
func (g *Guard) detached() context.Context { return hooks(g.set.hooks).background() }

func (g *Guard) isClosed() bool { return g.closing.Err() != nil }

// unlock unlocks g.mu, and then ends the subscriptions that nobody needs any more: a store may
// hold a lock of its own when it notifies.
func (g *Guard) unlock() {
	ended := g.queues.Ended()
	g.mu.Unlock()
	for _, stop := range ended {
		contain(stop) // this may be a goroutine of our own
	}
}

// tryAcquire, releaseClaim and await call the Locker. Close counts calls that have not returned.
func (g *Guard) tryAcquire(ctx context.Context, c driver.Claim) (driver.Answer, error) {
	g.calls.Add(1)
	defer g.calls.Add(-1)
	return g.locker.TryAcquire(ctx, c)
}

func (g *Guard) releaseClaim(ctx context.Context, c driver.Claim, after driver.After) (held bool, err error) {
	g.calls.Add(1)
	defer g.calls.Add(-1)
	return g.locker.Release(ctx, c, after)
}

func (g *Guard) await(ctx context.Context, op driver.Op, claims []driver.Claim, done func(i int, a driver.Answer, err error)) {
	g.calls.Add(1)
	defer g.calls.Add(-1)
	driver.Await(ctx, g.locker, op, claims, driver.After{}, done)
}

// sleep sleeps until an instant, or until wake has a value. It returns false if a context or
// channel ended it before.
func (g *Guard) sleep(until time.Duration, wake, done, closing <-chan struct{}) bool {
	var due <-chan time.Time
	if until != clock.Never {
		timer := time.NewTimer(until - g.clock.Now())
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-wake:
	case <-due:
	case <-done:
		return false
	case <-closing:
		return false
	}
	return true
}

// signal wakes the goroutine that sleeps with the channel, which has room for one element.
func signal(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}
