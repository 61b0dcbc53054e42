package guardtest_test

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

// An owners is a Locker that adds owners to a Locker that keeps none. The first claim of an owner
// acquires the key there. Further claims of the owner are counted here.
type owners struct {
	guard.Locker

	mu   sync.Mutex
	keys map[string]*ownedKey
}

type ownedKey struct {
	owner string
	first driver.Claim // the claim that the store knows
	holds map[string]bool
}

// ownerBackend returns a backend that keeps owners and whose Locker is wrapped.
func ownerBackend(w wrap) guardtest.Backend {
	s := wrapped(func(l guard.Locker) guard.Locker { return w(&owners{Locker: l, keys: map[string]*ownedKey{}}) })
	s.Owners = true
	s.Freeze = nil // the mutex of owners would block calls that should return
	return s
}

// live returns the entry of the key, if the store still holds the key.
func (o *owners) live(ctx context.Context, c driver.Claim) *ownedKey {
	k := o.keys[c.Key]
	if k == nil || ctx.Err() != nil {
		return nil
	}
	if g, err := o.Locker.TryAcquire(ctx, driver.Claim{Key: c.Key, ID: "probe", TTL: 1}); err != nil || g.State != driver.Busy {
		if g.State == driver.Granted {
			_, _ = o.Locker.Release(ctx, driver.Claim{Key: c.Key, ID: "probe"}, driver.After{})
		}
		return nil
	}
	return k
}

func (o *owners) TryAcquire(ctx context.Context, c driver.Claim) (driver.Answer, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	k := o.live(ctx, c)
	if k != nil && k.owner == c.Owner && len(k.holds) > 0 {
		k.holds[c.ID] = true
		c.ID = k.first.ID
		return o.Locker.TryAcquire(ctx, c)
	}
	g, err := o.Locker.TryAcquire(ctx, c)
	if err == nil && g.State == driver.Granted {
		o.keys[c.Key] = &ownedKey{owner: c.Owner, first: c, holds: map[string]bool{c.ID: true}}
	}
	return g, err
}

func (o *owners) Renew(ctx context.Context, c driver.Claim) (bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if k := o.live(ctx, c); k != nil {
		if !k.holds[c.ID] {
			return false, nil
		}
		c.ID = k.first.ID
	}
	return o.Locker.Renew(ctx, c)
}

func (o *owners) Release(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	k := o.live(ctx, c)
	switch {
	case k == nil || len(k.holds) == 0:
		return o.Locker.Release(ctx, c, after)
	case !k.holds[c.ID] && c.ID == k.first.ID:
		return false, nil
	case !k.holds[c.ID]:
		return o.Locker.Release(ctx, c, after) // it may be queued
	}
	delete(k.holds, c.ID)
	if len(k.holds) > 0 {
		return true, nil
	}
	k.first.Key = c.Key
	first := c
	first.ID = k.first.ID
	return o.Locker.Release(ctx, first, after)
}

// A denier keeps owners, but reports that it keeps none.
type denier struct{ guard.Locker }

func (denier) Describe() driver.Description { return driver.Description{} }

func brokenOwners() []broken {
	return []broken{
		{"it reports that it keeps no owners", ownerBackend(func(l guard.Locker) guard.Locker { return denier{l} }), []string{"a backend that keeps owners says so"}},
		{"a second claim of the owner has its own fence", ownerBackend(func(l guard.Locker) guard.Locker {
			var joins atomic.Uint64
			return &twist{Locker: l, acquire: func(ctx context.Context, c driver.Claim) (driver.Answer, error) {
				g, err := l.TryAcquire(ctx, c)
				g.Fence += joins.Add(1)
				return g, err
			}}
		}), []string{"an owner holds a key twice with one fence"}},
		{"an owner is refused its own key", func() guardtest.Backend { s := wrapped(same); s.Owners = true; return s }(), []string{
			"an owner holds a key twice with one fence", "a key is free after its owner's last release",
		}},
		{"all claims have the same owner", ownerBackend(mapping(func(c *driver.Claim) { c.Owner = "all" })), []string{
			"an owner holds a key twice with one fence", "a busy key's answer names the holder and the time left",
		}},
		{"an owner's first release frees the key", ownerBackend(releases(func(ctx context.Context, l guard.Locker, c driver.Claim, after driver.After) (bool, error) {
			held, err := l.Release(ctx, c, after)
			if held {
				_, _ = l.(*owners).Locker.Release(ctx, l.(*owners).keys[c.Key].first, after)
			}
			return held, err
		})), []string{"a key is free after its owner's last release", "a release ends only the hold with its ID"}},
		{"a release ends any of the owner's claims", ownerBackend(releases(func(ctx context.Context, l guard.Locker, c driver.Claim, after driver.After) (bool, error) {
			if k := l.(*owners).keys[c.Key]; k != nil {
				for id := range k.holds {
					c.ID = id
				}
			}
			return l.Release(ctx, c, after)
		})), []string{"a release ends only the hold with its ID"}},
		{"an owner's last release leaves nothing", ownerBackend(releases(func(ctx context.Context, l guard.Locker, c driver.Claim, _ driver.After) (bool, error) {
			return l.Release(ctx, c, driver.After{})
		})), []string{"an owner's last release leaves the marker"}},
		{"it keeps owners although it should not", func() guardtest.Backend { s := ownerBackend(same); s.Owners = false; return s }(), []string{
			"a claim with the holder's owner is refused",
		}},
	}
}
