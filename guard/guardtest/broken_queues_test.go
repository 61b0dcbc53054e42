package guardtest_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

// A caller is a Locker that keeps those who wait in line, and calls them as its fields say.
type caller struct {
	guard.Locker
	queuer guard.Queuer
	mute   func() bool // nobody is called, but when they begin to listen
	loud   bool        // all are called at each release
	deaf   bool        // stop is not heard

	mu    sync.Mutex
	bells []func(time.Duration)
}

func (l *caller) Queue(key, id string, called func(in time.Duration)) (stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bells = append(l.bells, called)
	begun := false
	stop = l.queuer.Queue(key, id, func(in time.Duration) {
		if !begun || l.mute == nil || !l.mute() {
			called(in)
		}
		begun = true
	})
	if l.deaf {
		return func() {}
	}
	return stop
}

func (l *caller) Release(ctx context.Context, c guard.Claim, after guard.After) (bool, error) {
	held, err := l.Locker.Release(ctx, c, after)
	if l.loud {
		l.mu.Lock()
		bells := l.bells
		l.mu.Unlock()
		for _, called := range bells {
			called(0)
			called(0)
		}
	}
	return held, err
}

// queueing returns a store that keeps those who wait in line, whose Locker is changed.
func queueing(w wrap, change func(*caller)) guardtest.Store {
	return guardtest.Store{
		New: func(testing.TB) guard.Locker {
			m := memory.New()
			l := &caller{Locker: w(m), queuer: m}
			change(l)
			return l
		},
		Bubble: true, Queues: true,
	}
}

func asIs(*caller) {}

// queueingOwners is queueing on a store that keeps owners.
func queueingOwners(w wrap) guardtest.Store {
	s := queueing(func(l guard.Locker) guard.Locker { return w(&owners{Locker: l, keys: map[string]*ownedKey{}}) }, asIs)
	s.Owners = true
	return s
}

func TestRun_passesAGoodStoreThatKeepsALine(t *testing.T) { guardtest.Run(t, queueing(same, asIs)) }

func TestRun_passesAGoodStoreThatKeepsALineAndOwners(t *testing.T) {
	guardtest.Run(t, queueingOwners(same))
}

const (
	inOrder    = "who waits in line is granted the key in the order in which they came"
	keepPlaces = "a repeated claim keeps its place in line"
	leaveLines = "who gives up its place in line is out of the way"
	losePlaces = "a place in line is lost after its TTL"
	behind     = "who does not stand in line is behind it, or beside it"
	callFirst  = "the first in line is called, and nobody else"
	passDead   = "who was called and does not come holds up the line for a second at most"
	tellLine   = "all in line learn that the key is done"
	tellNobody = "who has left the line is told nothing"
)

func brokenQueues() []broken {
	return []broken{
		{
			name: "it serves whoever comes",
			store: queueing(func(l guard.Locker) guard.Locker {
				return mapped(l, func(c *guard.Claim) { c.Line = guard.Beside })
			}, asIs),
			caughtBy: []string{inOrder, keepPlaces, leaveLines, behind},
		},
		{
			name: "all stand in line",
			store: queueing(func(l guard.Locker) guard.Locker {
				return mapped(l, func(c *guard.Claim) { c.Line = guard.Queued })
			}, asIs),
			caughtBy: []string{behind},
		},
		{
			name: "a claim beside the line stands behind it",
			store: queueing(func(l guard.Locker) guard.Locker {
				return mapped(l, func(c *guard.Claim) { c.Line = max(c.Line, guard.Behind) })
			}, asIs),
			caughtBy: []string{behind},
		},
		{name: "who repeats a claim goes to the end", store: queueing(toTheEnd, asIs), caughtBy: []string{keepPlaces}},
		{name: "a place in line is not given up", store: queueing(stays, asIs), caughtBy: []string{leaveLines, tellNobody}},
		{
			name: "a place in line is kept for long",
			store: queueing(func(l guard.Locker) guard.Locker {
				return mapped(l, func(c *guard.Claim) { c.TTL = max(c.TTL, time.Minute) })
			}, asIs),
			caughtBy: []string{losePlaces},
		},
		{
			name:     "nobody is called",
			store:    queueing(same, func(l *caller) { l.mute = func() bool { return true } }),
			caughtBy: []string{callFirst, tellLine, tellNobody},
		},
		{
			name:     "all are called",
			store:    queueing(same, func(l *caller) { l.loud = true }),
			caughtBy: []string{callFirst},
		},
		{
			name:     "who has left is called on",
			store:    queueing(same, func(l *caller) { l.loud, l.deaf = true, true }),
			caughtBy: []string{tellNobody},
		},
		{name: "the dead are waited for", store: queueing(patient, asIs), caughtBy: []string{passDead}},
		{name: "who is called has to be there at once", store: queueing(hasty, asIs), caughtBy: []string{passDead}},
		{
			name: "the line does not learn that a key is done",
			store: queueing(same, func(l *caller) {
				l.mute = func() bool {
					g, _ := l.queuer.(guard.Locker).TryAcquire(context.Background(), guard.Claim{Key: "key", ID: "probe", TTL: 1})
					return g.State == guard.Done
				}
			}),
			caughtBy: []string{tellLine},
		},
		{
			name: "an owner waits for himself",
			store: queueingOwners(func(l guard.Locker) guard.Locker {
				return &twist{Locker: l, acquire: l.(*owners).Locker.TryAcquire}
			}),
			caughtBy: []string{"an owner holds a key twice, whoever stands in line"},
		},
	}
}

// toTheEnd has a claim that is repeated give up its place before.
func toTheEnd(l guard.Locker) guard.Locker {
	var waits memo[bool]
	return &twist{Locker: l, acquire: func(ctx context.Context, c guard.Claim) (guard.Grant, error) {
		if waits.get(c.ID) {
			_, _ = l.Release(ctx, c, guard.After{})
		}
		g, err := l.TryAcquire(ctx, c)
		waits.set(c.ID, g.State == guard.Busy)
		return g, err
	}}
}

// stays ignores the release of a claim that was not granted.
func stays(l guard.Locker) guard.Locker {
	var granted memo[bool]
	return &twist{
		Locker: l,
		acquire: func(ctx context.Context, c guard.Claim) (guard.Grant, error) {
			g, err := l.TryAcquire(ctx, c)
			granted.set(c.ID, g.State == guard.Granted)
			return g, err
		},
		release: func(ctx context.Context, c guard.Claim, after guard.After) (bool, error) {
			if c.Line == guard.Queued && !granted.get(c.ID) && ctx.Err() == nil {
				return false, nil
			}
			return l.Release(ctx, c, after)
		},
	}
}

// patient waits for five seconds for who was called.
func patient(l guard.Locker) guard.Locker {
	var since memo[time.Time]
	return &twist{Locker: l, acquire: func(ctx context.Context, c guard.Claim) (guard.Grant, error) {
		if at := since.get(c.ID); !at.IsZero() && time.Since(at) < 5*time.Second {
			return guard.Grant{State: guard.Busy, Called: true, Left: guard.CallGrace}, nil
		}
		g, err := l.TryAcquire(ctx, c)
		if g.Called {
			since.set(c.ID, time.Now())
		}
		return g, err
	}}
}

// hasty has who was called lose its place at once.
func hasty(l guard.Locker) guard.Locker {
	return &twist{Locker: l, acquire: func(ctx context.Context, c guard.Claim) (guard.Grant, error) {
		for {
			g, err := l.TryAcquire(ctx, c)
			if !g.Called {
				return g, err
			}
			_, _ = l.Release(ctx, guard.Claim{Key: c.Key, ID: g.Holder, Line: guard.Queued}, guard.After{})
		}
	}}
}
