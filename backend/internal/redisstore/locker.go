package redisstore

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/seed-1795987d/onerun/backend/internal/pubsub"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// A Locker is what Lockers on one Redis have in common, once they have said how they keep keys. It
// is safe for concurrent use.
type Locker struct {
	store      *Store
	subscriber *pubsub.Subscriber
	queue      *queue
	crowds     crowds
	layout     Layout
}

// NewLocker returns a Locker on the store.
func NewLocker(store *Store, layout Layout) *Locker {
	if layout.Check == nil {
		layout.Check = func(driver.Claim) error { return nil }
	}
	subscriber := pubsub.New(store.client, layout.Via)
	l := &Locker{store: store, subscriber: subscriber, layout: layout}
	l.queue = &queue{subscriber: subscriber, locker: rand.Text(), dequeue: l.dequeue}
	if layout.Via != pubsub.ViaPlain {
		l.queue.publish = "sharded"
	}
	return l
}

// Close closes the connections that the Locker has made, each as soon as the call on it has ended.
// It does not close the application's client, nor end subscriptions: these end with their waiters.
// Claims, renewals and releases after it fail with driver.KindClosed, so close the Guards first.
// Closing a Guard does not close its Locker, because several Guards may share one. A Locker that is
// not closed disconnects after 15 seconds without use. Close returns nil. A second call does
// nothing.
func (l *Locker) Close() error {
	l.store.close()
	return nil
}

// Describe implements driver.Describer. ServerID sends INFO.
func (l *Locker) Describe() driver.Description {
	return driver.Description{
		Name: l.store.backend, Addr: l.store.Addr(), ServerID: l.store.serverID, Err: l.store.err, Queue: true,
	}
}

// Subscribe implements driver.Subscriber. All subscriptions share one connection, or one to each
// master of a Cluster. Without subscriptions, these connections are closed. Each Locker has a
// channel of its own for the queue of a key.
func (l *Locker) Subscribe(key, id string, notify func(in time.Duration)) (stop func()) {
	if id != "" {
		return l.queue.subscribe(l.layout.Names(driver.OpAcquire, key).Slot, key, id, notify)
	}
	w := l.crowds.join(key, notify)
	unsubscribe := l.subscriber.Subscribe(l.layout.Channel(key), w.receive)
	return func() {
		unsubscribe()
		l.crowds.leave(key, w)
	}
}

// Warnings implements driver.Warner. It sends INFO.
func (l *Locker) Warnings(ctx context.Context) []error { return l.store.warnings(ctx) }

// TryAcquire implements driver.Locker.
func (l *Locker) TryAcquire(ctx context.Context, c driver.Claim) (driver.Answer, error) {
	if err := l.layout.Check(c); err != nil {
		return driver.Answer{}, err
	}
	if c.Queue == driver.Queued { // the caller subscribes after the answer
		l.queue.asked.add(c.ID, underWay)
		defer l.queue.asked.add(c.ID, driver.NotifyGrace) // even if a hook panics
	}
	call := l.acquireCall(c)
	answer, err := l.store.run(ctx, &call)
	return l.store.toGrant(&call, answer, err)
}

// dequeue removes a claim from the queue of its key: the process has been notified for the claim,
// and does not know it. Its caller has gone, so the next claim in the queue need not wait for it.
// dequeue does not release the claim: the notification may be older than a grant.
func (l *Locker) dequeue(key, id string) {
	c := driver.Claim{Key: key, ID: id, Owner: id, Queue: driver.Queued, MaxHolders: driver.Unlimited}
	call := l.releaseCall(c, driver.After{})
	call.FurtherArgs[len(call.FurtherArgs)-1] = "Q"
	ctx, cancel := context.WithTimeout(context.Background(), driver.NotifyGrace)
	l.store.start(l.store.newRequest(ctx, &call, 0, func(int, driver.Answer, error) { cancel() }))
}

// Renew implements driver.Locker.
func (l *Locker) Renew(ctx context.Context, c driver.Claim) (bool, error) {
	held, err := l.store.integer(ctx, l.renewCall(c))
	return held == 1, err
}

// Release implements driver.Locker.
func (l *Locker) Release(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
	held, err := l.store.integer(ctx, l.releaseCall(c, after))
	return held == 1, err
}

// Start implements driver.Async. Calls that a script can serve together are one, on each server.
func (l *Locker) Start(
	ctx context.Context, op driver.Op, claims []driver.Claim, after driver.After, done func(i int, a driver.Answer, err error),
) {
	var room [1]*request // so that a single claim needs no slice of its own
	requests := room[:0]
	for i, c := range claims {
		var call Call
		switch op {
		case driver.OpAcquire:
			if err := l.layout.Check(c); err != nil {
				done(i, driver.Answer{}, err)
				continue
			}
			call = l.acquireCall(c)
		case driver.OpRenew:
			call = l.renewCall(c)
		default:
			call = l.releaseCall(c, after)
		}
		requests = append(requests, l.store.newRequest(ctx, &call, i, done))
	}
	l.store.start(requests...)
}

// integer runs a script that answers an integer.
func (s *Store) integer(ctx context.Context, c Call) (int64, error) {
	answer, err := s.run(ctx, &c)
	return s.toInt(&c, answer, err)
}
