package guard

import (
	"container/heap"
	"math"
	"time"
)

const (
	never = time.Duration(math.MaxInt64)
	// tick is the longest that the scheduler sleeps while a lease is held: after the host was
	// suspended, contexts end within one. It is also how long its goroutine outlives the last lease.
	tick = 500 * time.Millisecond
	// largestBatch bounds a batch of renewals, so that an answer is not far behind its request. Of those that are due at one instant of
	// the grid (renewalAfter) the last batch is seldom full: it is so much more than a hundred that all in all they carry that on average.
	largestBatch = 128
)

// schedule is the one timer and the one goroutine that all the leases of a Guard share. Each hold is
// in the heap, by the instant of its next event, from its grant until its release has begun.
// Guard.mu guards it.
type schedule struct {
	heap    holdHeap
	running bool
	wakeAt  time.Duration
	wake    chan struct{}
	slept   time.Duration // what Guard.asleep said when it was last asked
}

// add puts h into the schedule. g.mu must be held.
func (g *Guard) add(h *hold) {
	h.next = h.nextEvent()
	heap.Push(&g.schedule.heap, h)
	if !g.schedule.running {
		g.schedule.running = true
		g.schedule.wakeAt = 0
		g.schedule.slept = g.asleep(atLeast)
		g.inBackground(g.runSchedule)
		return
	}
	g.rouseFor(h)
}

// remove takes h out of the schedule. g.mu must be held.
func (g *Guard) remove(h *hold) {
	if h.index >= 0 {
		heap.Remove(&g.schedule.heap, h.index)
	}
}

// replace puts heir in h's place. g.mu must be held.
func (g *Guard) replace(h, heir *hold) {
	heir.index, h.index = h.index, -1
	g.schedule.heap[heir.index] = heir
	g.replan(heir)
}

// replan moves h to its next event after its state has changed. g.mu must be held.
func (g *Guard) replan(h *hold) {
	if h.index < 0 {
		return
	}
	h.next = h.nextEvent()
	heap.Fix(&g.schedule.heap, h.index)
	g.rouseFor(h)
}

// rouseFor wakes the scheduler if h is due before it would wake. g.mu must be held.
func (g *Guard) rouseFor(h *hold) {
	if h.next < g.schedule.wakeAt {
		g.rouse()
	}
}

func (g *Guard) rouse() {
	select {
	case g.schedule.wake <- struct{}{}:
	default:
	}
}

// runSchedule ends contexts and starts renewals when they are due. It never waits for the store, nor
// for a hook, and ends when nothing has been held for a tick.
func (g *Guard) runSchedule() {
	timer := time.NewTimer(tick)
	defer timer.Stop()
	for {
		lost, due, sleep := g.step()
		for _, h := range lost {
			h.announceLoss()
		}
		for _, batch := range due {
			g.startRenewal(batch)
		}
		if sleep < 0 {
			return
		}
		timer.Reset(sleep)
		select {
		case <-timer.C:
		case <-g.schedule.wake:
		}
	}
}

// step does what is due now: it returns the holds that are lost by now and those to be renewed, and
// how long to sleep then, negative if the scheduler is to end.
func (g *Guard) step() (lost []*hold, due [][]*hold, sleep time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := &g.schedule
	now := g.now()
	lost = g.loseSuspended(now)
	for len(s.heap) > 0 && s.heap[0].next <= now {
		h := s.heap[0]
		if h.expire(now) {
			lost = append(lost, h)
		}
		if !h.renewing && h.renewAt <= now {
			h.renewing = true
			due = addToBatch(due, h)
		}
		h.next = h.nextEvent()
		heap.Fix(&s.heap, 0)
	}
	if len(s.heap) == 0 && (g.closed || now >= s.wakeAt && s.wakeAt > 0) {
		s.running = false
		return lost, due, -1
	}
	sleep = tick
	if len(s.heap) > 0 {
		sleep = min(tick, s.heap[0].next-now)
	}
	s.wakeAt = now + sleep
	return lost, due, sleep
}

// loseSuspended ends the leases that were held while the host was suspended. g.mu must be held.
func (g *Guard) loseSuspended(now time.Duration) (lost []*hold) {
	slept := g.slept(now)
	if slept-g.schedule.slept < time.Millisecond { // it has not been, or not so that a margin would not cover it
		return nil
	}
	g.schedule.slept = slept
	for _, h := range g.schedule.heap {
		if h.lost == nil && h.suspended(slept) {
			h.lose(LossSuspended, now-h.validUntil())
			h.next = h.nextEvent()
			lost = append(lost, h)
		}
	}
	heap.Init(&g.schedule.heap)
	return lost
}

// addToBatch adds h to a batch of its TTL that is not full.
func addToBatch(batches [][]*hold, h *hold) [][]*hold {
	for i := len(batches) - 1; i >= 0; i-- {
		if b := batches[i]; len(b) < largestBatch && b[0].claim.TTL == h.claim.TTL {
			batches[i] = append(b, h)
			return batches
		}
	}
	return append(batches, []*hold{h})
}

// holdHeap is a heap of holds by their next event. It implements heap.Interface.
type holdHeap []*hold

func (q holdHeap) Len() int           { return len(q) }
func (q holdHeap) Less(i, j int) bool { return q[i].next < q[j].next }

func (q holdHeap) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

func (q *holdHeap) Push(x any) {
	h := x.(*hold)
	h.index = len(*q)
	*q = append(*q, h)
}

func (q *holdHeap) Pop() any {
	last := len(*q) - 1
	h := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	h.index = -1
	return h
}
