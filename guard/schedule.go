package guard

import (
	"container/heap"
	"time"

	"github.com/seed-1795987d/onerun/guard/internal/clock"
)

const (
	// tick is the longest that the scheduler sleeps while a lease is held: after the host was
	// suspended, contexts end within one tick. Its goroutine also outlives the last lease by a
	// tick.
	tick = 500 * time.Millisecond
	// maxBatch bounds a batch of renewals, so that an answer is not far behind its request.
	// The last batch of those that are due at one instant is seldom full, so the bound is somewhat
	// more than the hundred that a batch should have on average.
	maxBatch = 128
)

// schedule is the one timer and the one goroutine that all the leases of a Guard share. Each
// storeLease is in the heap, by the instant of its next event, from its grant until its release
// has begun. Guard.mu guards it.
type schedule struct {
	guard     *Guard
	heap      leaseHeap
	running   bool
	wakeAt    time.Duration
	wake      chan struct{}
	suspended time.Duration // the last reading of the suspension clock
}

// add puts t into the schedule. Guard.mu must be held.
func (s *schedule) add(t *storeLease) {
	t.next = t.nextEvent()
	heap.Push(&s.heap, t)
	if !s.running {
		s.running = true
		s.wakeAt = 0
		s.suspended = s.guard.clock.Suspension(clock.AtLeast)
		s.guard.background.start(s.run)
		return
	}
	if t.next < s.wakeAt {
		signal(s.wake)
	}
}

// remove takes t out of the schedule. Guard.mu must be held.
func (s *schedule) remove(t *storeLease) {
	if t.index >= 0 {
		heap.Remove(&s.heap, t.index)
	}
}

// replan moves t to its next event after its state has changed. Guard.mu must be held.
func (s *schedule) replan(t *storeLease) {
	if t.index < 0 {
		return
	}
	t.next = t.nextEvent()
	heap.Fix(&s.heap, t.index)
	if t.next < s.wakeAt {
		signal(s.wake)
	}
}

// run ends contexts and starts renewals when they are due. It never waits for the store, nor for a
// hook. It ends when nothing has been held for a tick.
func (s *schedule) run() {
	for {
		lost, overdue, due, until := s.step()
		for _, h := range lost {
			h.announceLoss()
		}
		for _, report := range overdue {
			report()
		}
		for _, batch := range due {
			s.guard.background.start(func() { s.guard.renew(batch) })
		}
		if until == clock.Never {
			return
		}
		s.guard.sleep(until, s.wake, nil, nil)
	}
}

// step does what is due now. It returns the holders that are lost by now, the reports of renewals
// that are overdue, the renewals to send, and until when to sleep then, which is clock.Never if
// the scheduler is to end.
func (s *schedule) step() (lost []*holder, overdue []func(), due [][]*renewal, until time.Duration) {
	g := s.guard
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.clock.Now()
	lost = s.loseSuspended(now)
	var batches batches
	for len(s.heap) > 0 && s.heap[0].next <= now {
		t := s.heap[0]
		lost = append(lost, t.expire(now)...)
		if t.renewal == renewalAwaited && t.overdueAt <= now {
			overdue = append(overdue, t.newest.setOverdue(now))
		}
		if t.renewal == renewalIdle && t.renewAt <= now {
			batches.add(newRenewal(t, now))
		}
		t.next = t.nextEvent()
		heap.Fix(&s.heap, 0)
	}
	if len(s.heap) == 0 && (g.isClosed() || now >= s.wakeAt && s.wakeAt > 0) {
		s.running = false
		return lost, overdue, batches.all, clock.Never
	}
	s.wakeAt = now + tick
	if len(s.heap) > 0 {
		s.wakeAt = min(s.wakeAt, s.heap[0].next)
	}
	return lost, overdue, batches.all, s.wakeAt
}

// loseSuspended ends the leases that were held while the host was suspended. Guard.mu must be
// held.
func (s *schedule) loseSuspended(now time.Duration) (lost []*holder) {
	suspended := s.guard.clock.Suspended(now)
	if suspended-s.suspended < time.Millisecond { // the margin covers it
		return nil
	}
	s.suspended = suspended
	for _, t := range s.heap {
		if t.suspended(suspended) {
			lost = append(lost, t.lose(LossSuspended, now)...)
			t.next = t.nextEvent()
		}
	}
	heap.Init(&s.heap)
	return lost
}

// batches are renewals that go out together. All of a batch have the same TTL.
type batches struct {
	all  [][]*renewal
	open map[time.Duration]int // by TTL, the batch that is not full
}

func (b *batches) add(r *renewal) {
	i, ok := b.open[r.claim.TTL]
	if !ok || len(b.all[i]) == maxBatch {
		if b.open == nil {
			b.open = map[time.Duration]int{}
		}
		i = len(b.all)
		b.open[r.claim.TTL] = i
		b.all = append(b.all, nil)
	}
	b.all[i] = append(b.all[i], r)
}

// leaseHeap is a heap of storeLeases by their next event. It implements heap.Interface.
type leaseHeap []*storeLease

func (q leaseHeap) Len() int           { return len(q) }
func (q leaseHeap) Less(i, j int) bool { return q[i].next < q[j].next }

func (q leaseHeap) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

func (q *leaseHeap) Push(x any) {
	t := x.(*storeLease)
	t.index = len(*q)
	*q = append(*q, t)
}

func (q *leaseHeap) Pop() any {
	last := len(*q) - 1
	t := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	t.index = -1
	return t
}
