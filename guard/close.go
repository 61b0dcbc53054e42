package guard

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// closeGrace is how long Close still waits for calls to the store that are under way, after its context has
// ended and it has taken back what was held, for which it waits as long as a release does (releaseGrace).
const closeGrace = 20 * time.Millisecond

// Close refuses new work and ends the waiting of calls that have no lease yet, both with ErrClosed. It
// waits until every lease has been given back, or until ctx ends: then it ends the contexts of the runs
// that are left with ErrClosed, gives their leases back although their functions may still be running,
// and returns an error that says how many there were and wraps that of ctx. In the end no goroutine of
// the Guard's own is left; if a call to the store is still under way, the error is ErrStore. A second
// Close does the same.
func (g *Guard) Close(ctx context.Context) error {
	g.mu.Lock()
	if !g.closed {
		g.closed = true
		close(g.closing)
	}
	g.mu.Unlock()

	var err error
	if !g.await(ctx, &g.active) {
		if n := g.takeBack(); n > 0 {
			err = fmt.Errorf("guard: close: took back %d leases from functions that were running: %w", n, context.Cause(ctx))
		}
	}
	g.rouse()
	ctx, cancel := withGrace(ctx, g.set.ttl, closeGrace)
	defer cancel()
	if !g.await(ctx, &g.background) && err == nil {
		err = fmt.Errorf("guard: close: a call has not been answered yet: %w", ErrStore)
	}
	return err
}

// takeBack releases all leases that are held, and returns how many there were.
func (g *Guard) takeBack() int {
	g.mu.Lock()
	held := append([]*hold(nil), g.schedule.heap...)
	g.mu.Unlock()

	ended, cancel := context.WithCancel(context.Background())
	cancel() // so that each waits for releaseGrace at most
	var taken atomic.Int64
	var sent sync.WaitGroup
	for _, h := range held {
		sent.Go(func() {
			back := h.giveBack(ended, ending{cause: &ClosedError{Key: h.key}})
			back.report()
			if back.hold != nil {
				taken.Add(1)
			}
		})
	}
	sent.Wait()
	return int(taken.Load())
}
