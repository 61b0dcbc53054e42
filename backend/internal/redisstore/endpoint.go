package redisstore

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/backend/internal/rediserr"
)

// An endpoint is one Redis server, or a Cluster as a whole.
type endpoint struct {
	client redis.UniversalClient
	slow   *slowMode    // nil if the client is not known
	mode   atomic.Int32 // a keyMode
	probe  probe
	// moved sends a request that a node of a Cluster has refused to the master of its key. It is
	// nil without a Cluster.
	moved func(*request, error)
}

func newEndpoint(client redis.UniversalClient) *endpoint {
	e := &endpoint{client: client}
	e.mode.Store(int32(unproven))
	if app, ok := client.(*redis.Client); ok && app != nil {
		e.slow = newSlowMode(app)
	}
	return e
}

// setMode adds what was learnt about the endpoint.
func (e *endpoint) setMode(learnt keyMode) {
	for {
		old := e.mode.Load()
		if e.mode.CompareAndSwap(old, int32((keyMode(old)|learnt)&^unproven)) {
			return
		}
	}
}

// A probe finds out whether one script may have the keys of several leases, see takesTogether.
type probe struct {
	mu   sync.Mutex
	next time.Time     // when to try again
	wait time.Duration // before that
}

// proveSoon makes the probe in the background, unless that is under way, or has failed just now.
// Until one has succeeded, each call has a script of its own, so no call waits for it.
func (e *endpoint) proveSoon() {
	if !e.probe.mu.TryLock() {
		return
	}
	if time.Now().Before(e.probe.next) {
		e.probe.mu.Unlock()
		return
	}
	go func() {
		defer e.probe.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), probeTTL/2)
		defer cancel()
		_ = e.proveNow(ctx)
	}()
}

// proveNow makes the probe, unless its result is known. e.probe.mu must be held.
func (e *endpoint) proveNow(ctx context.Context) error {
	if keyMode(e.mode.Load())&unproven == 0 {
		return nil
	}
	var by client = e.client
	if e.slow != nil {
		by = e.slow.client()
	}
	err := rediserr.Recovered(func() error {
		mode, err := takesTogether(ctx, by)
		if err == nil {
			e.setMode(mode)
		}
		return err
	})
	if p := &e.probe; err != nil {
		p.wait = min(max(2*p.wait, firstRetry), lastRetry)
		p.next = time.Now().Add(p.wait)
	}
	return err
}
