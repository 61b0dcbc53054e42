package guard

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"sync"
	"time"
)

// A Guard runs work once at a time, or once in a window, across all processes that share its store.
// It is safe for concurrent use. One Guard for a process is enough; what differs between kinds of
// work are options of the call.
type Guard struct {
	locker     Locker
	comparable bool                      // the Locker can be compared with another
	batch      BatchRenewer              // nil if the Locker has no such ability
	notifier   Notifier                  // nil if the Locker has no such ability
	ownerless  bool                      // the Locker keeps no owners
	queuer     Queuer                    // nil if the Locker has no such ability
	checkKey   func(key string) error    // the Locker's rules for keys, or CheckKey
	set        *settings                 // what New was told
	epoch      time.Time                 // instants are counted from here, on the monotonic clock
	asleep     func(bound) time.Duration // how long the host has been suspended since it booted
	naps       naps
	closing    chan struct{} // closed by Close
	dice       *dice
	reporter   reporter
	cleaner    cleaner

	// mu guards what follows, and the state of every hold.
	mu         sync.Mutex
	closed     bool
	active     int           // acquires under way and leases held
	background int           // goroutines of the Guard's own
	changed    chan struct{} // closed when active or background has come down to 0
	schedule   schedule
	lines      map[place]*line
	spareLines sync.Pool // of *line, empty ones
	unheard    []func()  // subscriptions to end, see unlockLines
	trip       pace      // of requests for a lease
}

// New returns a Guard over the store. It does not ask the store: that it cannot be reached shows at
// the first call, as a *StoreError. A setting that cannot work is a *SettingError which names it.
//
// Call Close before the process ends, so that keys that are held then are free at once.
func New(locker Locker, opts ...Option) (*Guard, error) {
	if isNil(locker) {
		return nil, &SettingError{Setting: "locker", Reason: "must not be nil"}
	}
	if c, ok := Ability[Checker](locker); ok {
		if err := c.Check(); err != nil {
			return nil, err
		}
	}
	set, err := (&settings{ttl: DefaultTTL, label: defaultLabel()}).with(opts)
	if err != nil {
		return nil, err
	}
	g := &Guard{
		locker:     locker,
		comparable: reflect.ValueOf(locker).Comparable(),
		checkKey:   CheckKey,
		set:        set,
		epoch:      time.Now(),
		asleep:     asleep,
		closing:    make(chan struct{}),
		dice:       newDice(),
		lines:      map[place]*line{},
	}
	g.spareLines.New = func() any { return new(line) }
	g.schedule.wake = make(chan struct{}, 1)
	g.cleaner.guard = g
	g.batch, _ = Ability[BatchRenewer](locker)
	g.notifier, _ = Ability[Notifier](locker)
	g.queuer, _ = Ability[Queuer](locker)
	if err := g.checkFair(set); err != nil {
		return nil, err
	}
	if o, ok := Ability[Ownerless](locker); ok {
		g.ownerless = o.Ownerless()
	}
	if c, ok := Ability[KeyChecker](locker); ok {
		g.checkKey = c.CheckKey
	}
	return g, nil
}

// Name returns the kind of work (WithName) of a call with these options: what hooks are told as Event.Name. It is for adapters, which
// have something to tell before there is a lease.
func (g *Guard) Name(opts ...Option) string {
	set, _ := g.set.with(opts)
	return set.name
}

// uncalled returns the context for calls to the store that no caller waits for.
func (g *Guard) uncalled() context.Context { return hooks(g.set.hooks).background() }

// isNil reports whether l is nil, or holds a nil pointer.
func isNil(l Locker) bool {
	if l == nil {
		return true
	}
	v := reflect.ValueOf(l)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

func defaultLabel() string {
	host, err := os.Hostname()
	if err != nil || len(host) > maxName {
		host = "unknown"
	}
	return fmt.Sprintf("%s pid %d", host, os.Getpid())
}

// now returns the instant, counted from the Guard's epoch on the monotonic clock.
func (g *Guard) now() time.Duration { return time.Since(g.epoch) }

// enter counts a call that is going to acquire. It fails if the Guard is closed.
func (g *Guard) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.active++
	return true
}

// leave undoes enter, once nothing is held or asked for any more.
func (g *Guard) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.active--
	g.notice(g.active)
}

// inBackground runs f in a goroutine for which Close waits. g.mu must be held.
func (g *Guard) inBackground(f func()) {
	g.background++
	go func() {
		defer func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.background--
			g.notice(g.background)
		}()
		f()
	}()
}

// notice wakes await if a count has come down to 0. g.mu must be held.
func (g *Guard) notice(count int) {
	if count == 0 && g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}

// await returns true once count, which is read under g.mu, is 0, and false if ctx ends before.
func (g *Guard) await(ctx context.Context, count *int) bool {
	for {
		g.mu.Lock()
		if *count == 0 {
			g.mu.Unlock()
			return true
		}
		if g.changed == nil {
			g.changed = make(chan struct{})
		}
		changed := g.changed
		g.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}
