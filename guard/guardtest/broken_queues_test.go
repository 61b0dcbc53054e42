package guardtest_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

// A queueLocker is a Locker with a queue of claims. It notifies them as its fields specify.
type queueLocker struct {
	guard.Locker
	queuer  driver.Subscriber
	silent  func() bool // whether to send no notifications after the start of a subscription
	loud    bool        // a release notifies all claims
	endless bool        // stop is ignored

	mu          sync.Mutex
	subscribers []func(time.Duration)
}

func (l *queueLocker) Describe() driver.Description {
	return driver.Description{Owners: true, Queue: true, Polls: true}
}

func (l *queueLocker) Subscribe(key, id string, notify func(in time.Duration)) (stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.subscribers = append(l.subscribers, notify)
	begun := false
	stop = l.queuer.Subscribe(key, id, func(in time.Duration) {
		if !begun || l.silent == nil || !l.silent() {
			notify(in)
		}
		begun = true
	})
	if l.endless {
		return func() {}
	}
	return stop
}

func (l *queueLocker) Release(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
	held, err := l.Locker.Release(ctx, c, after)
	if l.loud {
		l.mu.Lock()
		subscribers := l.subscribers
		l.mu.Unlock()
		for _, notify := range subscribers {
			notify(0)
			notify(0)
		}
	}
	return held, err
}

// queueBackend returns a backend with a queue of claims. change sets the fields of its Locker.
func queueBackend(w wrap, change func(*queueLocker)) guardtest.Backend {
	return guardtest.Backend{
		New: func(testing.TB) guard.Locker {
			m := memory.New()
			l := &queueLocker{Locker: w(m), queuer: m}
			change(l)
			return l
		},
		Bubble: true, Queues: true,
	}
}

func unchanged(*queueLocker) {}

// ownerQueueBackend returns a backend that keeps owners and a queue of claims.
func ownerQueueBackend(w wrap) guardtest.Backend {
	s := queueBackend(func(l guard.Locker) guard.Locker { return w(&owners{Locker: l, keys: map[string]*ownedKey{}}) }, unchanged)
	s.Owners = true
	return s
}

func TestRun_passesAGoodBackendWithAQueue(t *testing.T) {
	guardtest.Run(t, queueBackend(same, unchanged))
}

func TestRun_passesAGoodBackendWithAQueueAndOwners(t *testing.T) {
	guardtest.Run(t, ownerQueueBackend(same))
}

const (
	inOrder        = "queued claims are granted in the order in which they came"
	keepsPosition  = "a repeated claim keeps its position in the queue"
	leavesQueue    = "a release takes a queued claim out of the queue"
	losesPosition  = "a queued claim loses its position after its TTL"
	outsideQueue   = "a YieldToQueue claim yields to the queue, and an Unqueued claim ignores it"
	notifiesFirst  = "a release notifies only the first claim in the queue"
	delaysNobody   = "a notified claim that its process does not know delays nobody"
	queuedInVain   = "a call that gave up as it was queued leaves the queue"
	skipsDead      = "a notified claim that does not ask delays the queue by a second at most"
	notifiesAll    = "all queued claims are notified that the key is done"
	stopsNotifying = "a claim that has left the queue is not notified"
)

func brokenQueues() []broken {
	return []broken{
		{"it ignores the queue", queueBackend(mapping(func(c *driver.Claim) { c.Queue = driver.Unqueued }), unchanged), []string{
			inOrder, keepsPosition, leavesQueue, outsideQueue,
		}},
		{"all claims join the queue", queueBackend(mapping(func(c *driver.Claim) { c.Queue = driver.Queued }), unchanged), []string{outsideQueue}},
		{"an unqueued claim yields to the queue", queueBackend(mapping(func(c *driver.Claim) { c.Queue = max(c.Queue, driver.YieldToQueue) }), unchanged), []string{
			outsideQueue,
		}},
		{"a repeated claim goes to the end of the queue", queueBackend(toTheEnd, unchanged), []string{keepsPosition}},
		{"a release does not leave the queue", queueBackend(stays, unchanged), []string{leavesQueue, stopsNotifying, queuedInVain}},
		{"a position in the queue is kept for too long", queueBackend(mapping(func(c *driver.Claim) { c.TTL = max(c.TTL, time.Minute) }), unchanged), []string{losesPosition}},
		{"no claim is notified", queueBackend(same, func(l *queueLocker) { l.silent = func() bool { return true } }), []string{notifiesFirst, notifiesAll, stopsNotifying}},
		{"all claims are notified", queueBackend(same, func(l *queueLocker) { l.loud = true }), []string{notifiesFirst}},
		{"a claim that has left the queue is notified", queueBackend(same, func(l *queueLocker) { l.loud, l.endless = true, true }), []string{stopsNotifying}},
		{"the queue waits too long for a notified claim", queueBackend(patient, unchanged), []string{skipsDead}},
		{"the queue waits for claims that nobody knows", queueBackend(knowsAll, unchanged), []string{delaysNobody}},
		{"a notified claim has no time to ask", queueBackend(hasty, unchanged), []string{skipsDead}},
		{"the queue is not notified that the key is done", queueBackend(same, func(l *queueLocker) {
			l.silent = func() bool {
				g, _ := l.queuer.(guard.Locker).TryAcquire(context.Background(), driver.Claim{Key: "key", ID: "probe", TTL: 1})
				return g.State == driver.Done
			}
		}), []string{notifiesAll}},
		{"an owner waits for its own lease", ownerQueueBackend(func(l guard.Locker) guard.Locker {
			return &twist{Locker: l, acquire: l.(*owners).Locker.TryAcquire}
		}), []string{"an owner re-enters its key although claims are queued"}},
	}
}

// toTheEnd makes a repeated claim lose its position in the queue.
func toTheEnd(l guard.Locker) guard.Locker {
	var waits memo[bool]
	return &twist{Locker: l, acquire: func(ctx context.Context, c driver.Claim) (driver.Answer, error) {
		if waits.get(c.ID) {
			_, _ = l.Release(ctx, c, driver.After{})
		}
		g, err := l.TryAcquire(ctx, c)
		waits.set(c.ID, g.State == driver.Busy)
		return g, err
	}}
}

// stays ignores the release of a claim that was not granted.
func stays(l guard.Locker) guard.Locker {
	var granted memo[bool]
	return &twist{
		Locker: l,
		acquire: func(ctx context.Context, c driver.Claim) (driver.Answer, error) {
			g, err := l.TryAcquire(ctx, c)
			granted.set(c.ID, g.State == driver.Granted)
			return g, err
		},
		release: func(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
			if c.Queue == driver.Queued && !granted.get(c.ID) && ctx.Err() == nil {
				return false, nil
			}
			return l.Release(ctx, c, after)
		},
	}
}

// patient waits five seconds for a notified claim.
func patient(l guard.Locker) guard.Locker {
	var since memo[time.Time]
	return &twist{Locker: l, acquire: func(ctx context.Context, c driver.Claim) (driver.Answer, error) {
		if at := since.get(c.ID); !at.IsZero() && time.Since(at) < 5*time.Second {
			return driver.Answer{State: driver.Busy, Reason: driver.OtherNotified, Left: driver.NotifyGrace}, nil
		}
		g, err := l.TryAcquire(ctx, c)
		if g.Reason == driver.OtherNotified {
			since.set(c.ID, time.Now())
		}
		return g, err
	}}
}

// knowsAll subscribes for each claim itself.
func knowsAll(l guard.Locker) guard.Locker {
	var known memo[bool]
	return &twist{Locker: l, acquire: func(ctx context.Context, c driver.Claim) (driver.Answer, error) {
		if c.Queue == driver.Queued && !known.set(c.ID, true) {
			l.(driver.Subscriber).Subscribe(c.Key, c.ID, func(time.Duration) {})
		}
		return l.TryAcquire(ctx, c)
	}}
}

// hasty makes a notified claim lose its position at once.
func hasty(l guard.Locker) guard.Locker {
	return &twist{Locker: l, acquire: func(ctx context.Context, c driver.Claim) (driver.Answer, error) {
		for {
			g, err := l.TryAcquire(ctx, c)
			if g.Reason != driver.OtherNotified {
				return g, err
			}
			_, _ = l.Release(ctx, driver.Claim{Key: c.Key, ID: g.Holder, Queue: driver.Queued}, driver.After{})
		}
	}}
}
