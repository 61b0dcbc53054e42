package redisstore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/backend/internal/rediserr"
)

const (
	// largestBatch bounds a batch of claims and releases, so that no answer comes long after its
	// request could have had one.
	largestBatch = 128
	// usualWorkers is how many batches are out at a time if there is much to do. The second one
	// starts while the first is out if secondBatch requests wait.
	usualWorkers = 2
	secondBatch  = 32
	// largestRenewal bounds a batch of renewals, which are few scripts in one pipeline.
	largestRenewal = 32 * largestBatch
	// lateAfter is how long a batch may be out before the next one starts regardless: the
	// connection may be dead, or the server frozen. There are at most mostWorkers then.
	lateAfter   = 50 * time.Millisecond
	mostWorkers = 8
	// leastPrune is how many requests may wait before the queue is searched for those whose
	// callers have left, because the server does not answer.
	leastPrune = 4 * largestBatch
	// workerIdle is how long a worker waits for more: a goroutine that has grown its stack for
	// go-redis is worth keeping.
	workerIdle = 100 * time.Millisecond
)

// A batcher collects the requests to one server. A request that finds no batch out is sent at once,
// by itself. Those that come while one is out wait, and go out together as the next one.
type batcher struct {
	server *server
	conns  []*connection // of its own
	pooled *pooled       // from the user's pool, if there are no own connections; or nil
	// unlimited, of renewals, is what sends if there is no connection, or nil
	unlimited func() client
	largest   int  // of a batch
	acked     bool // replicas acknowledge its batches

	mu      sync.Mutex
	queue   []*request
	prune   int           // how long the queue may be before callers that left are looked for
	working int           // workers, and callers, that send, or are about to
	last    time.Time     // when the newest batch was taken from the queue
	idle    int           // workers that wait for more
	wake    chan struct{} // wakes one
	alarm   *time.Timer
}

func newBatcher(s *server, largest int) *batcher {
	return &batcher{
		server: s, largest: largest, wake: make(chan struct{}, usualWorkers),
	}
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
	stillWaited(left)
}

// pruned removes the requests whose callers have left from a queue that has grown, and returns
// them. b.mu must be held.
func (b *batcher) pruned() (left []*request) {
	if len(b.queue) <= max(b.prune, leastPrune) {
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
		return len(b.queue) >= secondBatch
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
	if len(b.queue) > 0 && b.alarm == nil && b.working < mostWorkers {
		b.alarm = time.AfterFunc(lateAfter, b.late)
	}
}

// late starts a batch behind one that has been out for long.
func (b *batcher) late() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.alarm = nil
	switch waited := time.Since(b.last); {
	case len(b.queue) == 0 || b.working >= mostWorkers:
	case waited < lateAfter:
		b.alarm = time.AfterFunc(lateAfter-waited, b.late)
	default:
		b.start()
		if b.working < mostWorkers {
			b.alarm = time.AfterFunc(lateAfter, b.late)
		}
	}
}

// take takes a batch from the queue. b.mu must be held.
func (b *batcher) take(batch []*request) []*request {
	n := min(len(b.queue), b.largest)
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
			b.sent()
		}
	}()
	var batch []*request
	for {
		b.mu.Lock()
		batch = b.take(batch)
		b.mu.Unlock()
		if waited := stillWaited(batch); len(waited) > 0 {
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
		b.arm()                     // as most workers may have been at work until now
		if b.idle == usualWorkers { // they are enough
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

// send sends a batch on one of the connections.
func (b *batcher) send(batch []*request) {
	ctx, cancel := lastOf(batch)
	defer cancel()
	for _, c := range b.conns {
		if c.take(ctx) {
			b.sendOn(ctx, c, batch)
			return
		}
	}
	if c := b.spare(ctx); c != nil {
		b.sendOn(ctx, c, batch)
		return
	}
	b.sendByPool(ctx, batch)
}

// sendByPool sends a batch on a connection of the user's client.
func (b *batcher) sendByPool(ctx context.Context, batch []*request) {
	var s sender
	p := b.server.patience
	if p == nil {
		_ = b.sendBy(ctx, b.server.client, &s, batch)
		return
	}
	within, end := withDeadline(ctx, b.server.client.(*redis.Client))
	defer end()
	switch {
	case b.pooled != nil:
		b.pooled.use(func(client client) error { return b.sendBy(within, client, &s, batch) })
	case b.unlimited != nil:
		p.warm(b.sendBy(within, b.unlimited(), &s, batch))
	case p.isSlow():
		p.warm(b.sendBy(within, p.client(), &s, batch))
	default:
		p.warm(b.sendBy(ctx, b.server.client, &s, batch))
	}
}

func (b *batcher) sendOn(ctx context.Context, c *connection, batch []*request) {
	err := errAborted // unless sendBy returns
	defer func() { c.release(err) }()
	err = b.sendBy(undone{ctx}, c.client, &c.sender, batch)
}

// sendBy sends a batch by a client. If a hook of the client panics, callers that wait do as well,
// and the other requests get an error. So they do if a hook ends the goroutine.
func (b *batcher) sendBy(ctx context.Context, client client, with *sender, batch []*request) (spoils error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		spoils = errAborted
		if p := recover(); p != nil {
			with.abort(&rediserr.HookPanic{Value: p})
			return
		}
		with.abort(errAborted)
	}()
	spoils = b.server.send(ctx, client, with, batch, b.acked)
	returned = true
	return spoils
}

// spare waits for a connection if the application has taken all of its own.
func (b *batcher) spare(ctx context.Context) *connection {
	for _, c := range b.conns {
		if c.userHasNoneLeft() && c.wait(ctx, lateAfter) {
			return c
		}
	}
	return nil
}

// sendNow sends the request from the caller's own goroutine if no batch is out and there is a
// connection, and returns false otherwise: the request is as it was then.
func (b *batcher) sendNow(r *request) bool {
	c := b.takeFirst(r.ctx)
	if c == nil {
		return false
	}
	defer b.sent()
	err := errAborted // unless send returns
	defer func() { c.release(err) }()
	c.one[0] = r
	err = b.server.send(undone{r.ctx}, c.client, &c.sender, c.one[:], false)
	return true
}

// errAborted stands for a hook of the client that has panicked or ended the goroutine.
var errAborted = errors.New("a hook of the client has not returned")

// sent ends what takeFirst began, and starts a batch with what has come in meanwhile.
func (b *batcher) sent() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.working--
	if b.due() {
		b.start()
	} else {
		b.arm()
	}
}

// takeFirst takes the first connection if no batch is out, and counts the caller as a worker.
func (b *batcher) takeFirst(ctx context.Context) *connection {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.working > 0 || len(b.conns) == 0 || !b.conns[0].take(ctx) {
		return nil
	}
	b.working++
	b.last = b.conns[0].used
	return b.conns[0]
}

// unused reports whether nothing has gone this way for that time.
func (b *batcher) unused(d time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.working == 0 && len(b.queue) == 0 && time.Since(b.last) > d
}

// lastOf returns a context for a batch, which ends when the last of its requests' contexts has.
func lastOf(batch []*request) (context.Context, context.CancelFunc) {
	if len(batch) == 1 {
		return batch[0].ctx, func() {}
	}
	var last time.Time
	for _, r := range batch {
		deadline, ok := r.ctx.Deadline()
		if !ok {
			return context.WithoutCancel(r.ctx), func() {}
		}
		if deadline.After(last) {
			last = deadline
		}
	}
	return context.WithDeadline(context.WithoutCancel(batch[0].ctx), last)
}
