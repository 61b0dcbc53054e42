package guard

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-1795987d/onerun/internal/lazyctx"
)

// closeGrace is how long Close still waits, after its context has ended and it has revoked what was
// held, for calls to the store that are under way.
const closeGrace = 20 * time.Millisecond

// Close refuses new work, and ends the waiting of calls that have no lease yet. Both return
// ErrClosed. It waits until every lease has been released. It also waits for every claim that the
// store may still have: after an acquire or a release without an answer, or a grant that came too
// late.
//
// If ctx ends before that, Close revokes the leases of functions that are still running: their
// contexts end with ErrClosed as the cause. It returns an error that wraps the cause of ctx. The
// error counts the leases that were revoked, the claims that were not released, and the calls to
// the store that have not returned. It also says whether a hook is still running. A claim that was
// not released holds its key until its TTL has passed. The error also wraps ErrStore if there are
// such claims or calls. If ctx has no deadline, Close waits for the functions that are running as
// long as they take, but at most 5 s for a store that does not answer.
//
// If Close returns nil, nothing is left: no lease, no claim, no goroutine. Close can be called
// again, and concurrently; the first context to end counts for all.
func (g *Guard) Close(ctx context.Context) error {
	// active counts acquisitions and holders. background counts the Guard's goroutines: the
	// schedule, clean-ups of orphans, renewals, hooks and watches.
	g.mu.Lock()
	g.closing.End()
	g.mu.Unlock()
	g.endAll(g.watches)

	defer g.stopCalls.End()
	if _, ok := ctx.Deadline(); !ok {
		defer time.AfterFunc(drainTime, g.stopCalls.End).Stop()
	}
	revoked := 0
	if !g.active.await(ctx) {
		revoked = g.revoke()
		g.endAll(g.deferrals)
	}
	g.stopRenewals.End()
	signal(g.schedule.wake)
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(drainTime)
	}
	rest := lazyctx.NewCall(ctx, deadline.Add(closeGrace), closeGrace)
	defer rest.End(nil)
	if !g.active.await(rest) || !g.background.await(rest) {
		g.cleaner.abandon()
		last, cancel := context.WithTimeout(context.Background(), closeGrace)
		defer cancel()
		g.background.await(last)
	}
	return g.closeError(ctx, revoked)
}

// endAll calls the functions of one of the maps that Guard.mu guards.
func (g *Guard) endAll(of map[any]func()) {
	g.mu.Lock()
	all := maps.Clone(of)
	g.mu.Unlock()
	for _, end := range all {
		end()
	}
}

func (g *Guard) closeError(ctx context.Context, revoked int) error {
	var parts []string
	add := func(n int, one, many string) {
		switch {
		case n == 1:
			parts = append(parts, "1 "+one)
		case n > 1:
			parts = append(parts, fmt.Sprintf("%d %s", n, many))
		}
	}
	add(revoked, "lease was revoked from a function that was running",
		"leases were revoked from functions that were running")
	unreleased, calls := g.cleaner.unreleased(), int(g.calls.Load())
	add(unreleased, "claim was not released, and may last until its TTL has passed",
		"claims were not released, and may last until their TTLs have passed")
	add(calls, "call to the store has not returned", "calls to the store have not returned")
	if calls == 0 {
		active, _ := g.active.count()
		add(active, "call has not returned from a hook", "calls have not returned from hooks")
		if g.reporter.isRunning() {
			parts = append(parts, "a hook has not returned")
		}
	}
	if len(parts) == 0 {
		return nil
	}
	err := fmt.Errorf("guard: close: %s", strings.Join(parts, "; "))
	if unreleased+calls > 0 {
		err = fmt.Errorf("%w: %w", err, ErrStore)
	}
	if cause := context.Cause(ctx); cause != nil {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

// revoke releases all leases that are held, and returns how many there were.
func (g *Guard) revoke() int {
	g.mu.Lock()
	held := make([]*holder, 0, len(g.schedule.heap))
	for _, t := range g.schedule.heap {
		for h := t.holder; h != nil; h = h.next {
			held = append(held, h)
		}
	}
	g.mu.Unlock()

	ended, cancel := context.WithCancel(context.Background())
	cancel() // so that each waits for releaseGrace at most
	var revoked atomic.Int64
	var sent sync.WaitGroup
	for _, h := range held {
		sent.Go(func() {
			var r release
			defer func() { // also if the Locker ends the goroutine
				if r.state != releaseNone && !r.neverAccepted {
					revoked.Add(1)
				}
				r.report()
			}()
			// A panic of the Locker would end the process. The cleaner goes on with its claim.
			contain(func() {
				r.begin(h, releaseOptions{cause: &ClosedError{Key: h.key, ran: true}})
				r.send(ended)
			})
		})
	}
	sent.Wait()
	return int(revoked.Load())
}
