package guardtest_test

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

// An owners is a Locker that keeps owners, on one that does not: the first hold of an owner takes the
// key there, and the others are counted here.
type owners struct {
	guard.Locker

	mu   sync.Mutex
	keys map[string]*ownedKey
}

type ownedKey struct {
	owner string
	first guard.Claim // the claim that the store knows
	holds map[string]bool
}

// ownerStore returns a store that keeps owners, whose Locker is wrapped.
func ownerStore(w wrap) guardtest.Store {
	s := wrapped(func(l guard.Locker) guard.Locker { return w(&owners{Locker: l, keys: map[string]*ownedKey{}}) })
	s.Owners = true
	s.Freeze = nil // owners would be held up by its own mutex
	return s
}

// live returns what is known of the key, if the store still has it.
func (o *owners) live(ctx context.Context, c guard.Claim) *ownedKey {
	k := o.keys[c.Key]
	if k == nil || ctx.Err() != nil {
		return nil
	}
	if g, err := o.Locker.TryAcquire(ctx, guard.Claim{Key: c.Key, ID: "probe", TTL: 1}); err != nil || g.State != guard.Busy {
		if g.State == guard.Granted {
			_, _ = o.Locker.Release(ctx, guard.Claim{Key: c.Key, ID: "probe"}, guard.After{})
		}
		return nil
	}
	return k
}

func (o *owners) TryAcquire(ctx context.Context, c guard.Claim) (guard.Grant, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	k := o.live(ctx, c)
	if k != nil && k.owner == c.Owner && len(k.holds) > 0 {
		k.holds[c.ID] = true
		c.ID = k.first.ID
		return o.Locker.TryAcquire(ctx, c)
	}
	g, err := o.Locker.TryAcquire(ctx, c)
	if err == nil && g.State == guard.Granted {
		o.keys[c.Key] = &ownedKey{owner: c.Owner, first: c, holds: map[string]bool{c.ID: true}}
	}
	return g, err
}

func (o *owners) Renew(ctx context.Context, c guard.Claim) (bool, error) {
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

func (o *owners) Release(ctx context.Context, c guard.Claim, after guard.After) (bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	k := o.live(ctx, c)
	switch {
	case k == nil || len(k.holds) == 0:
		return o.Locker.Release(ctx, c, after)
	case !k.holds[c.ID] && c.ID == k.first.ID:
		return false, nil
	case !k.holds[c.ID]:
		return o.Locker.Release(ctx, c, after) // it may stand in line
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

// brokenOwners are Lockers that keep owners badly.
// A denier keeps owners, and says that it keeps none.
type denier struct{ guard.Locker }

func (denier) Ownerless() bool { return true }

func brokenOwners() []broken {
	return []broken{
		{
			name:     "it denies that it keeps owners",
			store:    ownerStore(func(l guard.Locker) guard.Locker { return denier{l} }),
			caughtBy: []string{"who keeps owners does not say that it keeps none"},
		},
		{
			name: "a joined claim has a fence of its own",
			store: ownerStore(func(l guard.Locker) guard.Locker {
				var joins atomic.Uint64
				return &twist{Locker: l, acquire: func(ctx context.Context, c guard.Claim) (guard.Grant, error) {
					g, err := l.TryAcquire(ctx, c)
					g.Fence += joins.Add(1)
					return g, err
				}}
			}),
			caughtBy: []string{"an owner holds a key twice with one fence"},
		},
		{
			name:     "an owner is refused its own key",
			store:    func() guardtest.Store { s := wrapped(same); s.Owners = true; return s }(),
			caughtBy: []string{"an owner holds a key twice with one fence", "a key is free when its owner's last hold has gone"},
		},
		{
			name:     "everybody is an owner",
			store:    ownerStore(func(l guard.Locker) guard.Locker { return mapped(l, func(c *guard.Claim) { c.Owner = "all" }) }),
			caughtBy: []string{"an owner holds a key twice with one fence", "a busy key says how long and by whom"},
		},
		{
			name: "an owner's first release frees the key",
			store: ownerStore(func(l guard.Locker) guard.Locker {
				return &twist{Locker: l, release: func(ctx context.Context, c guard.Claim, after guard.After) (bool, error) {
					held, err := l.Release(ctx, c, after)
					if held {
						_, _ = l.(*owners).Locker.Release(ctx, l.(*owners).keys[c.Key].first, after)
					}
					return held, err
				}}
			}),
			caughtBy: []string{
				"a key is free when its owner's last hold has gone",
				"a release takes one hold of an owner's, by its ID",
			},
		},
		{
			name: "holds are counted and have no IDs",
			store: ownerStore(func(l guard.Locker) guard.Locker {
				return &twist{Locker: l, release: func(ctx context.Context, c guard.Claim, after guard.After) (bool, error) {
					if k := l.(*owners).keys[c.Key]; k != nil {
						for id := range k.holds {
							c.ID = id
						}
					}
					return l.Release(ctx, c, after)
				}}
			}),
			caughtBy: []string{"a release takes one hold of an owner's, by its ID"},
		},
		{
			name: "an owner's last release leaves nothing",
			store: ownerStore(func(l guard.Locker) guard.Locker {
				return &twist{Locker: l, release: func(ctx context.Context, c guard.Claim, _ guard.After) (bool, error) {
					return l.Release(ctx, c, guard.After{})
				}}
			}),
			caughtBy: []string{"an owner's last hold leaves a marker"},
		},
		{
			name:     "owners are kept where they should not be",
			store:    func() guardtest.Store { s := ownerStore(same); s.Owners = false; return s }(),
			caughtBy: []string{"a claim with the holder's owner is refused"},
		},
	}
}
