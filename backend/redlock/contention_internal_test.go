package redlock

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

const trip = time.Millisecond

// newTestContention returns what a process knows after a claim that took one trip.
func newTestContention() *contention {
	c := newContention([]*node{{addr: "b"}, {addr: "a"}})
	c.ended("other", trip, true)
	return c
}

// longest returns the longest of many pauses.
func longest(pause func() time.Duration) (most time.Duration) {
	for range 1000 {
		most = max(most, pause())
	}
	return most
}

func retried(key string) driver.Claim {
	return driver.Claim{Key: key, ID: "id", Owner: "id", Queue: driver.Retried}
}

func TestContention_theWindowGrowsWithCollisionsAndShrinksWithGrants(t *testing.T) {
	c := newTestContention()
	require.Equal(t, "a", c.first.addr)
	pause, probes := c.begin(retried("k"))
	require.Zero(t, pause, "nothing is delayed if claims have never collided")
	require.False(t, probes)
	window := func() time.Duration { return longest(func() time.Duration { return c.pause(c.of["k"]) }) }
	last := time.Duration(0)
	for range 6 {
		c.collided(retried("k"), trip)
		require.Greater(t, window(), last)
		last = window()
	}
	for range 10 {
		c.collided(retried("k"), trip)
	}
	require.Equal(t, maxRivals, c.of["k"].rivals)
	for range fullWindows {
		c.released("k")
	}
	require.LessOrEqual(t, window(), maxRivals*trip/2, "it has let many others go first")
	for range 100 {
		c.ended("k", trip, true)
	}
	require.Zero(t, window())
	for range probedBallots + 1 {
		c.begin(retried("k"))
	}
	require.Empty(t, c.of, "a key without rivals is forgotten")
	for i := range 10 * maxContested {
		c.collided(retried(fmt.Sprint(i)), trip)
		require.LessOrEqual(t, len(c.of), maxContested)
	}
}

func TestContention_theWindowGrowsSlowlyIfTheClaimComesTooLate(t *testing.T) {
	c := newTestContention()
	c.collided(retried("k"), trip)
	for i := range 2 * maxRivals {
		require.True(t, c.isAhead("k", fmt.Sprint(i)))
		require.Equal(t, min(i+2, maxRivals), c.of["k"].rivals)
	}
}

// Without the pause, the last holder would always be the first to ask. A process that waits already
// was notified late instead.
func TestContention_aClaimThatIsNewWaitsForAPartOfTheWindow(t *testing.T) {
	c := newTestContention()
	for range 5 {
		c.collided(retried("k"), trip)
	}
	paused := 0
	for range 100 {
		if pause, _ := c.begin(retried("k")); pause == 0 {
			continue
		}
		paused++
		again, probes := c.begin(retried("k"))
		require.Zero(t, again, "once")
		require.True(t, probes)
		c.collided(retried("k"), trip)
	}
	require.Greater(t, paused, 90)
	stop := c.wait("k")
	pause, _ := c.begin(retried("k"))
	require.Zero(t, pause)
	require.Positive(t, longest(func() time.Duration { return c.released("k") }))
	stop()
	require.Empty(t, c.waiters)
}

// Calls that end without an answer would otherwise make the window as long as they take: a key that
// is free would stay so for a minute after an outage.
func TestContention_anOutageDoesNotWidenTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var nodes []driver.Locker
		for range 3 {
			nodes = append(nodes, &guardtest.Scripted{OnAcquire: func(ctx context.Context, _ int, _ driver.Claim) (driver.Answer, error) {
				<-ctx.Done()
				return driver.Answer{}, ctx.Err()
			}})
		}
		l := New(nodes)
		l.contention.ended("other", trip, true)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		c := retried("k")
		c.TTL = time.Minute
		_, err := l.TryAcquire(ctx, c)
		require.ErrorIs(t, err, driver.ErrStore)
		require.Equal(t, trip, l.contention.trip)
	})
}

// Otherwise the nodes that are not asked keep others away for the claim, until its time has passed.
func TestContention_allNodesLearnHowARepeatedClaimEnds(t *testing.T) {
	nodes := []driver.Locker{memory.New(), memory.New(), memory.New()}
	l := New(nodes)
	ask := func(id string, maxHolders int, mode driver.QueueMode, repeated bool) driver.Answer {
		a, err := l.TryAcquire(t.Context(), driver.Claim{
			Key: "k", ID: id, Owner: id, TTL: time.Minute, MaxHolders: maxHolders, Queue: mode, Repeated: repeated,
		})
		require.NoError(t, err)
		return a
	}
	release := func(id string) {
		held, err := l.Release(t.Context(), driver.Claim{Key: "k", ID: id, Owner: id, TTL: time.Minute}, driver.After{})
		require.NoError(t, err)
		require.True(t, held)
	}
	require.Equal(t, driver.Granted, ask("reader", driver.Unlimited, driver.Unqueued, false).State)
	require.Equal(t, driver.HeldForClaim, ask("writer", 1, driver.Retried, false).Reason)
	release("reader")
	require.Equal(t, driver.Granted, ask("other writer", 1, driver.Unqueued, false).State)
	l.contention.collided(retried("k"), trip)
	require.Equal(t, driver.HeldByOther, ask("writer", 1, driver.Retried, true).Reason, "this claim is over")
	release("other writer")
	require.Equal(t, driver.Granted, ask("reader", driver.Unlimited, driver.Unqueued, false).State)
}

func TestSubscribe_aDelayedNotificationGivesWayToTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := &releasing{Locker: memory.New()}
		l := New([]driver.Locker{node, memory.New(), memory.New()})
		l.quorum = 1 // so that each release of the node is one of the quorum
		l.contention.ended("other", time.Hour, true)
		l.contention.collided(retried("k"), time.Hour)
		notified := 0
		stop := l.Subscribe("k", "", func(time.Duration) { notified++ })
		for range 10 {
			node.notify(0)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, 1, notified)
		node.notify(0)
		stop()
		time.Sleep(time.Hour)
		require.Equal(t, 1, notified, "the other one was stopped")
	})
}

// A releasing node notifies when the test says so.
type releasing struct {
	driver.Locker
	notify func(time.Duration)
}

func (r *releasing) Subscribe(_, _ string, notify func(time.Duration)) (stop func()) {
	r.notify = notify
	return func() {}
}
