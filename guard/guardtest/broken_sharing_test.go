package guardtest_test

import (
	"context"
	"crypto/rand"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

// A sharer is a Locker whose keys several claims can hold, and which keeps a queue of claims.
type sharer struct {
	guard.Locker
	driver.Subscriber
	refuses bool
}

func (s *sharer) Describe() driver.Description {
	return driver.Description{Owners: true, Queue: true, Polls: true, Shares: func(int) error {
		if s.refuses {
			return errors.New("it is refused")
		}
		return nil
	}}
}

func sharingBackend(w wrap) guardtest.Backend {
	return guardtest.Backend{
		New: func(testing.TB) guard.Locker {
			m := memory.New()
			return &sharer{Locker: w(m), Subscriber: m}
		},
		Bubble: true, Queues: true, Shares: []int{2, 5, driver.Unlimited},
	}
}

func TestRun_passesAGoodBackendThatShares(t *testing.T) { guardtest.Run(t, sharingBackend(same)) }

const (
	saysNumbers     = "the Locker says which numbers of holders it grants"
	countsHolders   = "a key has as many holders as its claims allow"
	sharedAtOnce    = "as many claims as may hold a key are granted when they are made at once"
	smallestCounts  = "the smallest number of the holders and the claim counts"
	aloneExcludes   = "a claim alone and a shared claim exclude each other"
	repeatShared    = "a repeated shared claim counts once"
	hasSeat         = "a shared holder has a seat of its own"
	sharedExpires   = "a shared claim that has expired makes way for another"
	sharedIsRenewed = "a shared claim that is renewed is held"
	sharedMinHold   = "a minimum hold of a shared claim counts as a holder"
	sharedFindsDone = "a shared claim of a done key is answered like any other"
	sharedFences    = "each holder of a shared key has a larger fence than those before"
	wantedKeepsOut  = "a claim that waits keeps later readers out"
	wantedEnds      = "a claim that was wanted and has gone keeps nobody out"
	sharesInOrder   = "shared claims are served in the order of the queue, those that fit at once"
	randomSharers   = "random workers never share a key with too many"
)

// ofShared changes the claims that share a key.
func ofShared(change func(c *driver.Claim)) wrap {
	return mapping(func(c *driver.Claim) {
		if c.MaxHolders > 1 {
			change(c)
		}
	})
}

// granting changes the grants of claims that share a key.
func granting(change func(g *driver.Answer)) wrap {
	return acquires(func(ctx context.Context, l guard.Locker, c driver.Claim) (driver.Answer, error) {
		g, err := l.TryAcquire(ctx, c)
		if c.MaxHolders > 1 && g.State == driver.Granted {
			change(&g)
		}
		return g, err
	})
}

func brokenSharing() []broken {
	refuses := sharingBackend(same)
	start := refuses.New
	refuses.New = func(t testing.TB) guard.Locker {
		l := start(t).(*sharer)
		l.refuses = true
		return l
	}
	return []broken{
		{"it refuses what it grants", refuses, []string{saysNumbers}},
		{"limits are ignored", sharingBackend(ofShared(func(c *driver.Claim) { c.MaxHolders = driver.Unlimited })), []string{
			countsHolders, smallestCounts, hasSeat, randomSharers,
		}},
		{"a claim is refused while another one is made", sharingBackend(func(l guard.Locker) guard.Locker {
			var calls atomic.Int32
			return &twist{Locker: l, acquire: func(ctx context.Context, c driver.Claim) (driver.Answer, error) {
				defer calls.Add(-1)
				if calls.Add(1) > 1 && c.MaxHolders > 1 {
					return driver.Answer{State: driver.Busy, Left: time.Second}, nil
				}
				time.Sleep(time.Microsecond)
				return l.TryAcquire(ctx, c)
			}}
		}), []string{sharedAtOnce}},
		{"nobody shares", sharingBackend(ofShared(func(c *driver.Claim) { c.MaxHolders = 1 })), []string{
			countsHolders, sharedAtOnce, smallestCounts, hasSeat, sharesInOrder, randomSharers,
		}},
		{"all claims share", sharingBackend(mapping(func(c *driver.Claim) { c.MaxHolders = max(c.MaxHolders, 2) })), []string{aloneExcludes, randomSharers}},
		{"shared claims with and without a limit do not see each other", sharingBackend(ofShared(func(c *driver.Claim) {
			if c.MaxHolders == driver.Unlimited {
				c.Key += " any"
			}
		})), []string{smallestCounts, aloneExcludes}},
		{"a repeated shared claim is a claim of its own", sharingBackend(func(l guard.Locker) guard.Locker {
			var seen memo[bool]
			return &twist{Locker: l, acquire: func(ctx context.Context, c driver.Claim) (driver.Answer, error) {
				if c.MaxHolders > 1 && seen.get(c.ID) {
					c.ID = rand.Text()
				}
				seen.set(c.ID, true)
				return l.TryAcquire(ctx, c)
			}}
		}), []string{repeatShared}},
		{"all have the same seat", sharingBackend(granting(func(g *driver.Answer) { g.Seat = min(g.Seat, 1) })), []string{hasSeat}},
		{"a shared claim does not expire", sharingBackend(ofShared(func(c *driver.Claim) { c.TTL = time.Hour })), []string{sharedExpires}},
		{"a shared claim is not renewed", sharingBackend(renews(func(ctx context.Context, l guard.Locker, c driver.Claim) (bool, error) {
			if c.MaxHolders > 1 {
				c.TTL = time.Nanosecond
			}
			return l.Renew(ctx, c)
		})), []string{sharedIsRenewed}},
		{"a shared claim has no minimum hold", sharingBackend(releases(func(ctx context.Context, l guard.Locker, c driver.Claim, after driver.After) (bool, error) {
			if c.MaxHolders > 1 {
				after = driver.After{}
			}
			return l.Release(ctx, c, after)
		})), []string{sharedMinHold}},
		{"a shared claim does not see that the key is done", sharingBackend(acquires(func(ctx context.Context, l guard.Locker, c driver.Claim) (driver.Answer, error) {
			g, err := l.TryAcquire(ctx, c)
			if c.MaxHolders > 1 && g.State == driver.Done {
				g = driver.Answer{State: driver.Granted, Fence: 1}
			}
			return g, err
		})), []string{sharedFindsDone}},
		{"shared claims have the same fence", sharingBackend(granting(func(g *driver.Answer) { g.Fence = 1 })), []string{sharedFences}},
		{"no claim is wanted", sharingBackend(mapping(func(c *driver.Claim) { c.Queue = driver.Unqueued })), []string{wantedKeepsOut}},
		{"a claim is wanted although it has gone", sharingBackend(releases(func(ctx context.Context, l guard.Locker, c driver.Claim, after driver.After) (bool, error) {
			if held, err := l.Renew(ctx, c); err != nil || !held {
				return false, err
			}
			return l.Release(ctx, c, after)
		})), []string{wantedEnds, "a writer that gave up as it was refused keeps no reader away"}},
		{"shared claims ignore the queue", sharingBackend(ofShared(func(c *driver.Claim) {
			c.Queue = driver.Unqueued
		})), []string{sharesInOrder}},
	}
}
