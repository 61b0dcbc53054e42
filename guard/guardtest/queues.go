package guardtest

import (
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// slack is how much longer than driver.NotifyGrace a notified claim that does not ask may delay
// the queue. The two add up to a second.
const slack = time.Second - driver.NotifyGrace

func queueChecks() []check {
	queues := func(b Backend) bool { return b.Queues }
	return []check{
		{name: "queued claims are granted in the order in which they came", needs: queues, run: servesInOrder},
		{name: "a repeated claim keeps its position in the queue", needs: queues, run: keepsPositions},
		{name: "a release takes a queued claim out of the queue", needs: queues, run: leavesQueue},
		{name: "a queued claim loses its position after its TTL", needs: queues, run: losesPosition},
		{name: "a YieldToQueue claim yields to the queue, and an Unqueued claim ignores it", needs: queues, run: outsideQueue},
		{name: "a release notifies only the first claim in the queue", needs: queues, run: notifiesTheFirst},
		{name: "a notified claim that does not ask delays the queue by a second at most", needs: queues, run: skipsTheDead},
		{name: "a notified claim that its process does not know delays nobody", needs: queues, run: removesTheUnknown},
		{name: "all queued claims are notified that the key is done", needs: queues, run: notifiesAllOfDone},
		{name: "a claim that has left the queue is not notified", needs: queues, run: stopsNotifyingClaims},
		{
			name:  "an owner re-enters its key although claims are queued",
			needs: func(b Backend) bool { return b.Queues && b.Owners }, run: ownerReenters,
		},
	}
}

// queued returns a claim of the key that joins the queue.
func (s *subject) queued() driver.Claim {
	c := s.claim("key")
	c.Queue = driver.Queued
	return c
}

// fillQueue makes one claim hold the key and n claims wait for it, in both processes.
func (s *subject) fillQueue(n int) (holder driver.Claim, waiting []driver.Claim) {
	s.Helper()
	holder = s.queued()
	s.here.mustAcquire(holder)
	for i := range n {
		c := s.queued()
		s.processOf(i).requireQueued(c, i)
		waiting = append(waiting, c)
	}
	return holder, waiting
}

// processOf returns the process of the i-th waiter.
func (s *subject) processOf(i int) process {
	if i%2 == 0 {
		return s.there
	}
	return s.here
}

// requireQueued makes the claim. The key must be held, and ahead claims must be ahead in the
// queue.
func (p process) requireQueued(c driver.Claim, ahead int) {
	p.t.Helper()
	g := p.requireBusy(c, long)
	require.Equal(p.t, ahead, g.Ahead, "the number of claims ahead in the queue")
	require.NotEqual(p.t, driver.OtherNotified, g.Reason, "the key is held")
}

// requireOtherNotified makes the claim. The key must be free, and another claim must have been
// notified.
func (p process) requireOtherNotified(c driver.Claim) driver.Answer {
	p.t.Helper()
	g := p.requireBusy(c, driver.NotifyGrace)
	require.Equal(p.t, driver.OtherNotified, g.Reason, "another claim was notified")
	return g
}

func servesInOrder(s *subject) {
	holder, waiting := s.fillQueue(5)
	fence := s.here.mustAcquire(holder).Fence
	for i, c := range waiting {
		s.processOf(i+1).mustRelease(holder, driver.After{})
		for j := len(waiting) - 1; j > i; j-- {
			require.Equal(s, j-i, s.processOf(j).requireOtherNotified(waiting[j]).Ahead, "the number of claims ahead in the queue")
		}
		g := s.processOf(i).mustAcquire(c)
		require.Greater(s, g.Fence, fence)
		require.False(s, g.Held)
		again := s.processOf(i).mustAcquire(c)
		require.Equal(s, g.Fence, again.Fence, "a repeated claim must have the same fence")
		holder, fence = c, g.Fence
	}
	s.here.mustRelease(holder, driver.After{})
	s.here.mustAcquire(s.claim("key"))
}

func keepsPositions(s *subject) {
	holder, waiting := s.fillQueue(3)
	for range 3 {
		s.processOf(1).requireQueued(waiting[1], 1)
		s.processOf(0).requireQueued(waiting[0], 0)
	}
	s.here.mustRelease(holder, driver.After{})
	s.processOf(1).requireOtherNotified(waiting[1])
	s.processOf(2).requireOtherNotified(waiting[2])
	s.processOf(0).mustAcquire(waiting[0])
	s.processOf(1).requireQueued(waiting[1], 0)
	s.processOf(2).requireQueued(waiting[2], 1)
}

func leavesQueue(s *subject) {
	holder, waiting := s.fillQueue(4)
	require.False(s, s.processOf(1).release(waiting[1], driver.After{}), "a release of a waiting claim must return false")
	s.processOf(2).requireQueued(waiting[2], 1)
	s.here.mustRelease(holder, driver.After{})
	s.processOf(3).requireOtherNotified(waiting[3])
	require.False(s, s.processOf(0).release(waiting[0], driver.After{}), "a release of a waiting claim must return false")
	require.Equal(s, 1, s.processOf(3).requireOtherNotified(waiting[3]).Ahead, "the number of claims ahead in the queue")
	s.processOf(2).mustAcquire(waiting[2])
	s.processOf(1).requireQueued(waiting[1], 1) // it has joined again, at the end
}

func losesPosition(s *subject) {
	holder := s.queued()
	s.here.mustAcquire(holder)
	lost, next := s.queued(), s.queued()
	lost.TTL = s.short()
	begin := time.Now()
	s.there.requireQueued(lost, 0)
	if ahead := s.here.requireBusy(next, long).Ahead; time.Since(begin) < lost.TTL {
		require.Equal(s, 1, ahead, "the number of claims ahead in the queue")
	}
	s.outlive(lost.TTL)
	s.here.mustRelease(holder, driver.After{})
	s.here.mustAcquire(next)
}

func outsideQueue(s *subject) {
	yielding, unqueued := s.claim("key"), s.claim("key")
	yielding.Queue = driver.YieldToQueue
	s.here.mustAcquire(yielding)
	s.here.mustRelease(yielding, driver.After{})

	holder, waiting := s.fillQueue(1)
	s.here.mustRelease(holder, driver.After{})
	s.here.requireOtherNotified(yielding)
	s.here.mustAcquire(unqueued)
	s.processOf(0).requireQueued(waiting[0], 0)
	_, stop := s.subscribeClaim(s.processOf(0), waiting[0])
	defer stop()
	// The waiter asked when it was notified. It need not ask again until it is notified again.
	time.Sleep(driver.NotifyGrace + 4*early)
	s.here.mustRelease(unqueued, driver.After{})
	s.here.requireOtherNotified(yielding)
	s.processOf(0).mustAcquire(waiting[0])
	s.here.requireBusy(yielding, long)
	s.processOf(0).mustRelease(waiting[0], driver.After{})
	s.here.mustAcquire(yielding)
}

// A claimSubscriber records the notifications of a queued claim: after what times it should ask.
type claimSubscriber struct {
	mu            sync.Mutex
	notifications []time.Duration
}

func (b *claimSubscriber) notify(in time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.notifications = append(b.notifications, in)
}

// cancelledChecks returns how often the claim was notified that it need not check on the claim
// ahead any more.
func (b *claimSubscriber) cancelledChecks() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, in := range b.notifications {
		if in < 0 {
			n++
		}
	}
	return n
}

// wakeUps returns how often the claim was notified to ask at once.
func (b *claimSubscriber) wakeUps() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, in := range b.notifications {
		if in == 0 {
			n++
		}
	}
	return n
}

// subscribeClaim subscribes for a queued claim, and returns when the subscription has begun.
func (s *subject) subscribeClaim(p process, c driver.Claim) (b *claimSubscriber, stop func()) {
	s.Helper()
	q, ok := p.locker.(driver.Subscriber)
	require.True(s, ok, "Backend.Queues is set, but the Locker is no driver.Subscriber")
	require.True(s, driver.Describe(p.locker).Queue, "Backend.Queues is set, but not Description.Queue")
	b = &claimSubscriber{}
	stop = q.Subscribe(c.Key, c.ID, b.notify)
	s.eventually(func() bool { return b.wakeUps() > 0 }, "the subscription begins")
	g := p.acquire(c) // as a waiter does when its subscription begins
	require.Equal(s, driver.Busy, g.State)
	return b, stop
}

func notifiesTheFirst(s *subject) {
	holder, waiting := s.fillQueue(3)
	subscribers := make([]*claimSubscriber, len(waiting))
	for i, c := range waiting {
		var stop func()
		subscribers[i], stop = s.subscribeClaim(s.processOf(i), c)
		defer stop()
	}
	for i, c := range waiting {
		time.Sleep(4 * early) // for earlier notifications
		var before []int
		for _, b := range subscribers {
			before = append(before, b.wakeUps())
		}
		s.processOf(i+1).mustRelease(holder, driver.After{})
		s.eventually(func() bool { return subscribers[i].wakeUps() > before[i] }, "the first claim in the queue is notified")
		s.processOf(i).mustAcquire(c)
		if i+1 < len(subscribers) {
			s.eventually(func() bool { return subscribers[i+1].cancelledChecks() > 0 }, "the next claim is notified that the first has asked")
		}
		time.Sleep(4 * early)
		for j := i + 1; j < len(subscribers); j++ {
			require.Equal(s, before[j], subscribers[j].wakeUps(), "a claim further back in the queue was notified")
		}
		holder = c
	}
}

func skipsTheDead(s *subject) {
	holder, waiting := s.fillQueue(3)
	for _, i := range []int{0, 2} { // of the two dead claims, one has a subscriber
		_, stop := s.subscribeClaim(s.processOf(i), waiting[i])
		defer stop()
	}
	s.here.mustRelease(holder, driver.After{})
	start := time.Now()
	var delay time.Duration // that the store asks for, however long this machine takes
	var g driver.Answer
	for g.State != driver.Granted {
		g = s.processOf(2).acquire(waiting[2])
		if g.State == driver.Busy {
			require.Equal(s, driver.OtherNotified, g.Reason)
			s.processOf(2).requireLeft(g, driver.NotifyGrace)
			wait := g.Left + time.Millisecond
			time.Sleep(wait)
			delay += wait
		}
		require.Less(s, delay, 2*(driver.NotifyGrace+slack), "two dead claims have delayed the queue for too long")
	}
	require.GreaterOrEqual(s, time.Since(start)+early, driver.NotifyGrace, "the notified claims must have time to ask")
	s.processOf(0).requireQueued(waiting[0], 0) // it has lost its position and joins again
}

// The caller of the first claim has gone. Another claim of its process waits. It is notified
// although it does not ask again after the grace of the first claim.
func removesTheUnknown(s *subject) {
	holder, unknown, waits := s.queued(), s.queued(), s.queued()
	s.here.mustAcquire(holder)
	s.there.requireQueued(unknown, 0)
	s.there.requireQueued(waits, 1)
	b, stop := s.subscribeClaim(s.there, waits)
	defer stop()
	time.Sleep(driver.NotifyGrace + 4*early) // the first claim may be about to subscribe until then
	before := b.wakeUps()
	s.here.mustRelease(holder, driver.After{})
	s.eventually(func() bool { return b.wakeUps() > before }, "the next claim is notified")
	s.there.mustAcquire(waits)
	s.there.requireQueued(unknown, 0) // it joins again
}

func notifiesAllOfDone(s *subject) {
	holder, waiting := s.fillQueue(3)
	var subscribers []*claimSubscriber
	for i, c := range waiting {
		b, stop := s.subscribeClaim(s.processOf(i), c)
		defer stop()
		subscribers = append(subscribers, b)
	}
	time.Sleep(4 * early) // for earlier notifications
	var before []int
	for _, b := range subscribers {
		before = append(before, b.wakeUps())
	}
	s.here.mustRelease(holder, driver.After{Keep: long, Done: true, Record: []byte("record")})
	for i, b := range subscribers {
		s.eventually(func() bool { return b.wakeUps() > before[i] }, "the claim is notified that the key is done")
		require.Equal(s, "record", string(s.processOf(i).requireDone(waiting[i], long).Record))
	}
}

func stopsNotifyingClaims(s *subject) {
	holder, waiting := s.fillQueue(2)
	b, stop := s.subscribeClaim(s.processOf(0), waiting[0])
	next, stopNext := s.subscribeClaim(s.processOf(1), waiting[1])
	defer stopNext()
	time.Sleep(4 * early) // for earlier notifications
	stop()
	stop()
	require.False(s, s.processOf(0).release(waiting[0], driver.After{}))
	time.Sleep(4 * early) // one more notification is allowed
	before, beforeNext := b.wakeUps(), next.wakeUps()
	s.here.mustRelease(holder, driver.After{})
	s.eventually(func() bool { return next.wakeUps() > beforeNext }, "the next claim is notified")
	require.LessOrEqual(s, b.wakeUps(), before+1, "a claim was notified after it had left the queue")
}

func ownerReenters(s *subject) {
	first, second := s.owned()
	first.Queue, second.Queue = driver.Queued, driver.Queued
	fence := s.here.mustAcquire(first).Fence
	waiting := s.queued()
	s.there.requireQueued(waiting, 0)
	joined := s.there.mustAcquire(second)
	require.True(s, joined.Held)
	require.Equal(s, fence, joined.Fence)
	s.here.mustRelease(first, driver.After{})
	s.there.requireQueued(waiting, 0)
	s.there.mustRelease(second, driver.After{})
	s.there.mustAcquire(waiting)
}
