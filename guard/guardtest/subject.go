package guardtest

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
)

const (
	// long is a TTL that does not pass while a check runs.
	long = 10 * time.Minute
	// short is a TTL for whose end a check waits.
	short = 150 * time.Millisecond
	// early is by how much a store may end a lease too soon: it may count in milliseconds.
	early = 5 * time.Millisecond
	// patience is how long a check waits for what has to come. It says nothing about how long that
	// should take.
	patience = 20 * time.Second
	pollStep = 5 * time.Millisecond
)

// A subject is a fresh store in one check, with two processes that ask it.
type subject struct {
	testing.TB
	store Store
	here  process
	there process // the same Locker where the store has no Again
}

// settled waits until the whole store knows that the key is done.
func (s *subject) settled(key string) {
	if s.store.Settled != nil {
		s.store.Settled(s, key)
	}
}

func newSubject(t testing.TB, s Store) *subject {
	here := s.New(t)
	require.NotNil(t, here, "New returned no Locker")
	there := here
	if s.Again != nil {
		there = s.Again(t, here)
		require.NotNil(t, there, "Again returned no Locker")
	}
	return &subject{TB: t, store: s, here: process{t, here}, there: process{t, there}}
}

// claim returns a claim of the key that no other claim has to do with.
func (s *subject) claim(key string) guard.Claim {
	id := rand.Text()
	return guard.Claim{Key: key, ID: id, Owner: id, TTL: long, Label: "claimed by " + id}
}

// short returns a TTL for whose end a check can wait.
func (s *subject) short() time.Duration { return max(short, 2*s.store.MinTTL) }

// outlive sleeps until a lease that lasts for ttl, and was given before now, has ended for certain.
func (s *subject) outlive(ttl time.Duration) { time.Sleep(ttl + 4*early) }

// eventually waits until what is true.
func (s *subject) eventually(true func() bool, what string) {
	s.Helper()
	for start := time.Now(); !true(); time.Sleep(pollStep) {
		if time.Since(start) > patience {
			require.Fail(s, "this has not happened: "+what)
		}
	}
}

// A process is a Locker of which a test asks what has to be answered.
type process struct {
	t      testing.TB
	locker guard.Locker
}

func (p process) context() (context.Context, context.CancelFunc) {
	return context.WithTimeout(p.t.Context(), patience)
}

// acquire claims, again as long as nobody holds the key and several claims have met: what was refused or given back
// before may not have left all nodes of a quorum.
func (p process) acquire(c guard.Claim) guard.Grant {
	p.t.Helper()
	ctx, cancel := p.context()
	defer cancel()
	for {
		g, err := p.locker.TryAcquire(ctx, c)
		require.NoError(p.t, err)
		if !g.Contested {
			return g
		}
		time.Sleep(pollStep)
	}
}

func (p process) renew(c guard.Claim) (held bool) {
	p.t.Helper()
	ctx, cancel := p.context()
	defer cancel()
	held, err := p.locker.Renew(ctx, c)
	require.NoError(p.t, err)
	return held
}

func (p process) release(c guard.Claim, after guard.After) (held bool) {
	p.t.Helper()
	ctx, cancel := p.context()
	defer cancel()
	held, err := p.locker.Release(ctx, c, after)
	require.NoError(p.t, err)
	return held
}

// take acquires what has to be free, or held by this claim.
func (p process) take(c guard.Claim) guard.Grant {
	p.t.Helper()
	g := p.acquire(c)
	require.Equal(p.t, guard.Granted, g.State, "a claim of a key that is free")
	return g
}

// give releases what is held.
func (p process) give(c guard.Claim, after guard.After) {
	p.t.Helper()
	require.True(p.t, p.release(c, after), "the release by the holder was refused")
}

// refused claims what has to be busy for at most longest, and more than nothing.
func (p process) refused(c guard.Claim, longest time.Duration) guard.Grant {
	p.t.Helper()
	g := p.acquire(c)
	require.Equal(p.t, guard.Busy, g.State, "a claim of a key that is held")
	p.left(g, longest)
	return g
}

// finished claims what has to be done for at most longest, and more than nothing.
func (p process) finished(c guard.Claim, longest time.Duration) guard.Grant {
	p.t.Helper()
	g := p.acquire(c)
	require.Equal(p.t, guard.Done, g.State, "a claim of a key whose work is done")
	p.left(g, longest)
	return g
}

// left checks what is left, which a store may round up to a millisecond.
func (p process) left(g guard.Grant, longest time.Duration) {
	p.t.Helper()
	require.Positive(p.t, g.Left, "what is left")
	require.LessOrEqual(p.t, g.Left, (longest + time.Millisecond - 1).Truncate(time.Millisecond), "what is left")
}

// waitFor claims until it is granted, which must not be before the instant soonest. Until then the
// answers have to be state.
func (p process) waitFor(c guard.Claim, state guard.State, soonest time.Time) guard.Grant {
	p.t.Helper()
	for start := time.Now(); ; time.Sleep(pollStep) {
		g := p.acquire(c)
		if g.State == guard.Granted {
			require.False(p.t, time.Now().Add(early).Before(soonest), "the key was free too soon")
			return g
		}
		require.Equal(p.t, state, g.State, "while the key is not free")
		require.Less(p.t, time.Since(start), patience, "the key was never free")
	}
}
