package redisstore

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"
)

const (
	// normalWorkers is how many batches are out at a time if there is much to do. The second one
	// starts while the first is out if secondBatch requests wait.
	normalWorkers = 2
	secondBatch   = 32
	// maxWorkers is how many batches may be out if each is late.
	maxWorkers = 8
	// minPrune is how many requests may wait before the batcher searches the queue for callers that
	// have left, because the server does not answer.
	minPrune = 4 * maxBatch
	// maxRenewals bounds a batch of renewals. It is large: the engine has put them into batches
	// already, and a pipeline takes one round trip however many scripts it has.
	maxRenewals = 32 * maxBatch
	// workerIdle is how long a worker waits for more: a goroutine that has grown its stack for
	// go-redis is worth keeping.
	workerIdle = 100 * time.Millisecond
)

// A batcher collects requests of one kind to one server. A request that finds no batch out is sent
// at once, by itself. Those that come while one is out wait, and go out together as the next one.
type batcher struct {
	endpoint *endpoint
	lanes    []*lane
	size     int           // the most requests in a batch
	second   int           // how many must wait for a second batch to start
	laneWait time.Duration // how long to wait for a lane if the application uses up its pool

	mu      sync.Mutex
	queue   []*request
	prune   int           // how long the queue may be before callers that left are looked for
	working int           // workers, and callers, that send, or are about to
	last    time.Time     // when the newest batch was taken from the queue
	idle    int           // workers that wait for more
	wake    chan struct{} // wakes one
	alarm   *time.Timer
}

func newBatcher(to *endpoint) *batcher {
	return &batcher{
		endpoint: to, size: maxBatch, second: secondBatch, laneWait: connectWithin,
		wake: make(chan struct{}, normalWorkers),
	}
}

// newRenewer returns a batcher of renewals. One pipeline after the other is enough for them, and
// they wait for their lane rather than for a connection that the application may not give back.
func newRenewer(to *endpoint) *batcher {
	b := newBatcher(to)
	b.size, b.second, b.laneWait = maxRenewals, math.MaxInt, connectAtMost
	return b
}

// add sends the requests with the next batch. Each is finished once: soon after its context has
// ended if the server answers other requests, and at the latest if the client gives up.
func (b *batcher) add(requests ...*request) {
	b.mu.Lock()
	b.queue = append(b.queue, requests...)
	left := b.pruned()
	if b.due() {
		b.start()
	} else {
		b.arm()
	}
	b.mu.Unlock()
	dropAbandoned(left)
}

// pruned removes the requests whose callers have left from a queue that has grown, and returns
// them. b.mu must be held.
func (b *batcher) pruned() (left []*request) {
	if len(b.queue) <= max(b.prune, minPrune) {
		return nil
	}
	b.queue = slices.DeleteFunc(b.queue, func(r *request) bool {
		if r.ctx.Err() == nil {
			return false
		}
		left = append(left, r)
		return true
	})
	b.prune = 2 * len(b.queue)
	return left
}

// due reports whether the next batch is to start. While one is out, a second one starts if it is
// worth it: then the server serves one while the client encodes or decodes the other. b.mu must be
// held.
func (b *batcher) due() bool {
	switch b.working {
	case 0:
		return len(b.queue) > 0
	case 1:
		return len(b.queue) >= b.second
	default:
		return false
	}
}

// start has a worker send a batch. b.mu must be held.
func (b *batcher) start() {
	b.working++
	if b.idle > 0 {
		b.idle--
		b.wake <- struct{}{} // has room, as only idle workers are woken
		return
	}
	go b.work()
}

// arm sets the alarm if requests wait and a worker may start. b.mu must be held.
func (b *batcher) arm() {
	if len(b.queue) > 0 && b.alarm == nil && b.working < maxWorkers {
		b.alarm = time.AfterFunc(lateAfter, b.late)
	}
}

// late starts a batch behind one that has been out for long.
func (b *batcher) late() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.alarm = nil
	switch waited := time.Since(b.last); {
	case len(b.queue) == 0 || b.working >= maxWorkers:
	case waited < lateAfter:
		b.alarm = time.AfterFunc(lateAfter-waited, b.late)
	case b.waitsForLane():
		b.alarm = time.AfterFunc(lateAfter, b.late)
	default:
		b.start()
		if b.working < maxWorkers {
			b.alarm = time.AfterFunc(lateAfter, b.late)
		}
	}
}

// waitsForLane reports whether another batch could only wait for the lane, as the application uses
// up its pool. It is better if all that comes meanwhile shares one batch: on a slow link, more
// renewals come than round trips fit in.
func (b *batcher) waitsForLane() bool {
	return b.laneWait == connectAtMost && len(b.lanes) > 0 && b.lanes[0].appPoolExhausted()
}

// take takes a batch from the queue. b.mu must be held.
func (b *batcher) take(batch []*request) []*request {
	n := min(len(b.queue), b.size)
	batch = append(batch[:0], b.queue[:n]...)
	rest := copy(b.queue, b.queue[n:])
	clear(b.queue[rest:])
	b.queue = b.queue[:rest]
	b.last = time.Now()
	return batch
}

// work sends batches, one after the other, until there has been none for some time.
func (b *batcher) work() {
	rest := time.NewTimer(workerIdle)
	defer rest.Stop()
	sending := false
	defer func() {
		if sending { // a hook has ended the goroutine
			b.finishDirect()
		}
	}()
	var batch []*request
	for {
		b.mu.Lock()
		batch = b.take(batch)
		b.mu.Unlock()
		if waited := dropAbandoned(batch); len(waited) > 0 {
			sending = true
			b.send(waited)
			sending = false
		}
		clear(batch)
		b.mu.Lock()
		b.working--
		if b.due() {
			b.working++
			b.mu.Unlock()
			continue
		}
		b.arm() // this may have been the last worker that was allowed
		if b.idle == normalWorkers {
			b.mu.Unlock()
			return
		}
		b.idle++
		b.mu.Unlock()
		if !b.woken(rest) {
			return
		}
	}
}

// woken waits until an idle worker is needed, and returns false if none is for some time.
func (b *batcher) woken(rest *time.Timer) bool {
	rest.Reset(workerIdle)
	select {
	case <-b.wake:
		return true
	case <-rest.C:
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.idle > 0 {
		b.idle--
		return false
	}
	<-b.wake // it was woken at this very moment
	return true
}

// send sends a batch on a lane, or by the application's client if no lane is free. It waits for a
// lane if the application uses up its pool.
func (b *batcher) send(batch []*request) {
	ctx, cancel := lastOf(batch)
	defer cancel()
	for _, l := range b.lanes {
		if l.take(ctx) {
			l.send(ctx, b.endpoint, batch)
			return
		}
	}
	for _, l := range b.lanes {
		if l.appPoolExhausted() && l.wait(ctx, b.laneWait) {
			l.send(ctx, b.endpoint, batch)
			return
		}
	}
	b.endpoint.sendByApp(ctx, batch)
}

// sendDirect sends the request from the caller's own goroutine if no batch is out and a lane is
// free, and returns false otherwise: the request is as it was then.
func (b *batcher) sendDirect(r *request) bool {
	l := b.takeFirst(r.ctx)
	if l == nil {
		return false
	}
	defer b.finishDirect()
	err := errAborted // unless send returns
	defer func() { l.release(err) }()
	l.one[0] = r
	err = b.endpoint.send(noDone{r.ctx}, l.conn, &l.sender, l.one[:])
	return true
}

// finishDirect ends what takeFirst began, and starts a batch with what has come in meanwhile.
func (b *batcher) finishDirect() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.working--
	if b.due() {
		b.start()
	} else {
		b.arm()
	}
}

// takeFirst takes the first lane if no batch is out, and counts the caller as a worker.
func (b *batcher) takeFirst(ctx context.Context) *lane {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.working > 0 || len(b.lanes) == 0 || !b.lanes[0].take(ctx) {
		return nil
	}
	b.working++
	b.last = b.lanes[0].used
	return b.lanes[0]
}

func (b *batcher) unused(d time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.working == 0 && len(b.queue) == 0 && time.Since(b.last) > d
}
