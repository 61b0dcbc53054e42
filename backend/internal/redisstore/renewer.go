package redisstore

import (
	"sync"
	"time"
)

// maxRenewals bounds a pipeline of renewals.
const maxRenewals = 32 * maxBatch

// A renewer sends renewals to one server, on a lane that nothing else uses. The engine has put them
// into batches already. Those that come while a pipeline is under way share the next one: on a slow
// link, more batches come than round trips fit in.
type renewer struct {
	endpoint *endpoint
	lane     *lane // or nil

	mu    sync.Mutex
	queue []*request
	out   int       // pipelines under way
	last  time.Time // when the newest one began
	alarm *time.Timer
}

// add sends the renewals. Each is finished once.
func (n *renewer) add(requests ...*request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.queue = append(n.queue, requests...)
	n.start()
}

// start sends what waits, or looks again soon. n.mu must be held.
func (n *renewer) start() {
	switch {
	case len(n.queue) == 0:
	case n.out == 0 || n.isLate():
		n.out++
		go n.work()
	case n.alarm == nil:
		n.alarm = time.AfterFunc(lateAfter, func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.alarm = nil
			n.start()
		})
	}
}

// isLate reports whether to send although a pipeline is under way: its connection may be dead. The
// next one is sent by the application's client, unless the application uses up its pool. n.mu must
// be held.
func (n *renewer) isLate() bool {
	return n.out < maxWorkers && time.Since(n.last) > lateAfter && (n.lane == nil || !n.lane.appPoolExhausted())
}

// work sends pipelines until no renewals wait.
func (n *renewer) work() {
	defer n.end()
	for batch := n.next(); len(batch) > 0; batch = n.next() {
		if batch = dropAbandoned(batch); len(batch) > 0 {
			n.send(batch)
		}
	}
}

// next takes the next pipeline from the queue.
func (n *renewer) next() []*request {
	n.mu.Lock()
	defer n.mu.Unlock()
	size := min(len(n.queue), maxRenewals)
	batch := n.queue[:size:size]
	if n.queue = n.queue[size:]; size > 0 {
		n.last = time.Now()
	}
	return batch
}

// end ends work, perhaps because a hook of a client has ended the goroutine.
func (n *renewer) end() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.out--
	n.start()
}

// send sends a pipeline on the lane. If the lane is not available soon, it uses the application's
// client; but if the application uses up its pool, it waits for the lane.
func (n *renewer) send(batch []*request) {
	ctx, cancel := lastOf(batch)
	defer cancel()
	l := n.lane
	if l != nil && (l.take(ctx) || l.appPoolExhausted() && l.wait(ctx, connectAtMost)) {
		l.send(ctx, n.endpoint, batch)
		return
	}
	n.endpoint.sendByApp(ctx, batch)
}

// unused reports whether nothing has been sent for that time.
func (n *renewer) unused(d time.Duration) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.out == 0 && time.Since(n.last) > d
}
