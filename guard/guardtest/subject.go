package guardtest

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

const (
	// long is a TTL that does not pass while a check runs.
	long = 10 * time.Minute
	// short is a TTL that passes while a check waits.
	short = 150 * time.Millisecond
	// early is how much too soon a store may end a lease, because it may count in milliseconds.
	early = 5 * time.Millisecond
	// patience is how long a check waits for an expected event. It is not a limit on how long the
	// event should take.
	patience = 20 * time.Second
	pollStep = 5 * time.Millisecond
)

// A subject is an empty store in one check, with two processes that use it.
type subject struct {
	testing.TB
	backend Backend
	here    process
	there   process // the same Locker if Again is nil
}

func newSubject(t testing.TB, backend Backend) *subject {
	here := backend.New(t)
	require.NotNil(t, here, "New returned no Locker")
	there := here
	if backend.Again != nil {
		there = backend.Again(t, here)
		require.NotNil(t, there, "Again returned no Locker")
	}
	settled := backend.Settled
	if settled == nil {
		settled = func(testing.TB) {}
	}
	return &subject{TB: t, backend: backend, here: process{t, here, settled}, there: process{t, there, settled}}
}

// claim returns a claim of the key with an ID and an owner of its own.
func (s *subject) claim(key string) driver.Claim {
	id := rand.Text()
	return driver.Claim{Key: key, ID: id, Owner: id, TTL: long, Label: "claimed by " + id}
}

// short returns a TTL that passes while a check waits.
func (s *subject) short() time.Duration { return max(short, 2*s.backend.MinTTL) }

// outlive sleeps until a lease of that TTL, granted before now, has certainly ended.
func (s *subject) outlive(ttl time.Duration) { time.Sleep(ttl + s.late()) }

// late is how long after its TTL a lease has certainly ended.
func (s *subject) late() time.Duration { return s.backend.Late + 4*early }

// eventually waits until condition is true. what describes it.
func (s *subject) eventually(condition func() bool, what string) {
	s.Helper()
	for start := time.Now(); !condition(); time.Sleep(pollStep) {
		if time.Since(start) > patience {
			require.Fail(s, "this did not happen in time: "+what)
		}
	}
}

// A process is a Locker as one process uses it. Its methods check the answers, and return when all
// parts of the store have done what they were asked for. Those whose names begin with try do
// neither.
type process struct {
	t       testing.TB
	locker  guard.Locker
	settled func(testing.TB)
}

func (p process) context() (context.Context, context.CancelFunc) {
	return context.WithTimeout(p.t.Context(), patience)
}

// acquire makes the claim. It repeats a contested claim: a claim that was released or refused
// before may not have left all nodes of a quorum.
func (p process) acquire(c driver.Claim) driver.Answer {
	p.t.Helper()
	ctx, cancel := p.context()
	defer cancel()
	for {
		g, err := p.locker.TryAcquire(ctx, c)
		require.NoError(p.t, err)
		p.settled(p.t)
		if !g.Reason.IsUndecided() {
			return g
		}
		time.Sleep(pollStep)
	}
}

func (p process) renew(c driver.Claim) (held bool) {
	p.t.Helper()
	ctx, cancel := p.context()
	defer cancel()
	held, err := p.locker.Renew(ctx, c)
	require.NoError(p.t, err)
	p.settled(p.t)
	return held
}

func (p process) release(c driver.Claim, after driver.After) (held bool) {
	p.t.Helper()
	ctx, cancel := p.context()
	defer cancel()
	held, err := p.locker.Release(ctx, c, after)
	require.NoError(p.t, err)
	p.settled(p.t)
	return held
}

// mustAcquire acquires a key that must be free or held by this claim.
func (p process) mustAcquire(c driver.Claim) driver.Answer {
	p.t.Helper()
	g := p.acquire(c)
	require.Equal(p.t, driver.Granted, g.State, "the answer to a claim of a free key")
	return g
}

// mustRelease releases a claim that must be held.
func (p process) mustRelease(c driver.Claim, after driver.After) {
	p.t.Helper()
	require.True(p.t, p.release(c, after), "a release by the holder must return true")
}

// requireBusy makes a claim of a key that must be busy. Left must be positive, and at most
// longest.
func (p process) requireBusy(c driver.Claim, longest time.Duration) driver.Answer {
	p.t.Helper()
	g := p.acquire(c)
	require.Equal(p.t, driver.Busy, g.State, "the answer to a claim of a busy key")
	p.requireLeft(g, longest)
	return g
}

// requireDone makes a claim of a key that must be done. Left must be positive, and at most
// longest.
func (p process) requireDone(c driver.Claim, longest time.Duration) driver.Answer {
	p.t.Helper()
	g := p.acquire(c)
	require.Equal(p.t, driver.Done, g.State, "the answer to a claim of a done key")
	p.requireLeft(g, longest)
	return g
}

// requireLeft checks Left, which a store may round up to a millisecond.
func (p process) requireLeft(g driver.Answer, longest time.Duration) {
	p.t.Helper()
	require.Positive(p.t, g.Left, "Left must be positive")
	require.LessOrEqual(p.t, g.Left, (longest + time.Millisecond - 1).Truncate(time.Millisecond), "Left is too long")
}

// awaitGrant repeats the claim until it is granted, which must not be before soonest. All earlier
// answers must have the given state.
func (p process) awaitGrant(c driver.Claim, state driver.State, soonest time.Time) driver.Answer {
	p.t.Helper()
	for start := time.Now(); ; time.Sleep(pollStep) {
		g := p.acquire(c)
		if g.State == driver.Granted {
			require.False(p.t, time.Now().Add(early).Before(soonest), "the key became free too soon")
			return g
		}
		require.Equal(p.t, state, g.State, "the answer before the key is free")
		require.Less(p.t, time.Since(start), patience, "the key did not become free in time")
	}
}
