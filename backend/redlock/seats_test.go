package redlock_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/backend/redlock"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

// limited returns a claim that shares its key with up to n holders, itself included.
func limited(id string, n int) guard.Claim {
	c := claimOf("k", id)
	c.Among = n
	return c
}

// sit acquires the key for one of n holders, and returns the claim with its fence and seat.
func sit(t testing.TB, l guard.Locker, id string, n int) guard.Claim {
	t.Helper()
	c := limited(id, n)
	g, err := l.TryAcquire(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, guard.Granted, g.State)
	c.Fence, c.Seat = g.Fence, g.Seat
	return c
}

// occupy has another claim take a seat in the boxes of these numbers.
func occupy(t testing.TB, boxes []*box, id string, n, seat int, in ...int) {
	t.Helper()
	for _, i := range in {
		c := limited(id, n)
		c.Seat = seat
		require.Equal(t, seat, take(t, boxes[i], c).Seat)
	}
}

// requireSeats asserts which seat the claim has in each box, or 0.
func requireSeats(t testing.TB, boxes []*box, c guard.Claim, want ...int) {
	t.Helper()
	synctest.Wait()
	for i, b := range boxes {
		has := 0
		for seat := 1; seat <= c.Among; seat++ {
			probe := c
			probe.Fence, probe.Seat = 0, seat
			if held, _ := b.store.Renew(t.Context(), probe); held {
				has = seat
			}
		}
		require.Equal(t, want[i], has, "the seat in node %d", i)
	}
}

func release(t testing.TB, l guard.Locker, c guard.Claim) {
	t.Helper()
	held, err := l.Release(t.Context(), c, guard.After{})
	require.NoError(t, err)
	require.True(t, held)
	time.Sleep(time.Second) // all nodes have released it
}

// only leaves just the boxes of these numbers reachable.
func only(boxes []*box, up ...int) {
	for _, b := range boxes {
		b.kill()
	}
	for _, i := range up {
		boxes[i].heal()
	}
}

// Each majority would grant two.
func TestSeats_holdersOnOtherMajoritiesHaveOtherSeats(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, l *redlock.Locker, boxes []*box) {
		only(boxes, 0, 1, 2)
		first := sit(t, l, "first", 2)
		require.Equal(t, 1, first.Seat)
		time.Sleep(time.Second)
		only(boxes, 2, 3, 4)
		second := sit(t, l, "second", 2)
		require.Equal(t, 2, second.Seat)
		time.Sleep(time.Second)
		requireSeats(t, boxes, first, 1, 1, 1, 0, 0)
		requireSeats(t, boxes, second, 0, 0, 2, 2, 2)
		for _, up := range [][]int{{0, 1, 2}, {2, 3, 4}, {0, 1, 3}, {0, 3, 4}, {0, 1, 2, 3, 4}} {
			only(boxes, up...)
			g := try(t, l, limited(fmt.Sprint("third", up), 2))
			require.Equal(t, guard.Busy, g.State, "with the nodes %v", up)
			time.Sleep(time.Second)
		}
		held, err := l.Renew(t.Context(), first)
		require.NoError(t, err)
		require.True(t, held)
		held, err = l.Renew(t.Context(), second)
		require.NoError(t, err)
		require.True(t, held)
		time.Sleep(time.Second)
		requireSeats(t, boxes, first, 1, 1, 1, 1, 1)
		requireSeats(t, boxes, second, 2, 2, 2, 2, 2)
	})
}

func TestSeats_readersAndHoldersWithALimitExcludeEachOtherOnOtherMajorities(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, l *redlock.Locker, boxes []*box) {
		only(boxes, 0, 1, 2)
		reader := take(t, l, shared("reader"))
		time.Sleep(time.Second)
		only(boxes, 2, 3, 4)
		require.Equal(t, guard.Busy, try(t, l, limited("limited", 16)).State)
		time.Sleep(time.Second)
		only(boxes, 0, 1, 2, 3, 4)
		release(t, l, reader)
		only(boxes, 0, 1, 2)
		sit(t, l, "limited 2", 16)
		time.Sleep(time.Second)
		only(boxes, 2, 3, 4)
		require.Equal(t, guard.Busy, try(t, l, shared("reader 2")).State)
		require.Equal(t, guard.Busy, try(t, l, claimOf("k", "writer")).State)
	})
}

// No holder may be there whose seat is above the limit of another one.
func TestSeats_theSmallerLimitCountsOnOtherMajorities(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, l *redlock.Locker, boxes []*box) {
		only(boxes, 0, 1, 2)
		holders := []guard.Claim{sit(t, l, "a", 3), sit(t, l, "b", 3), sit(t, l, "c", 3)}
		time.Sleep(time.Second)
		release(t, l, holders[0])
		only(boxes, 2, 3, 4)
		deployed := limited("deployed", 2)
		deployed.Waits = true
		require.Equal(t, guard.Busy, try(t, l, deployed).State, "seat 3 is taken")
		time.Sleep(time.Second)
		only(boxes, 0, 1, 2)
		require.True(t, try(t, l, deployed).Wanted)
		only(boxes, 0, 1, 2, 3, 4)
		require.Equal(t, guard.Busy, try(t, l, limited("late", 3)).State, "a smaller limit is wanted")
		time.Sleep(time.Second)
		release(t, l, holders[2])
		g := try(t, l, deployed)
		require.Equal(t, guard.Granted, g.State)
		require.Equal(t, 1, g.Seat)
		time.Sleep(time.Second)
		require.Equal(t, guard.Busy, try(t, l, limited("late 2", 3)).State)
	})
}

// The nodes that answer know different holders, and have one seat in common that is free.
func TestSeats_aSeatIsFoundThatAMajorityCanGrant(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, l *redlock.Locker, boxes []*box) {
		occupy(t, boxes, "x", 3, 1, 0, 1)
		occupy(t, boxes, "y", 3, 2, 2)
		only(boxes, 0, 1, 2)
		c := sit(t, l, "a", 3)
		require.Equal(t, 3, c.Seat)
		time.Sleep(time.Second)
		requireSeats(t, boxes, c, 3, 3, 3, 0, 0)
		require.Equal(t, 2, boxes[2].count(driver.OpAcquire)-1, "it is asked twice")
	})
}

// A seat that is free on few nodes is of no use.
func TestSeats_aClaimWithoutACommonSeatIsRefusedAndLeavesNothing(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, l *redlock.Locker, boxes []*box) {
		occupy(t, boxes, "x", 2, 1, 0, 1)
		occupy(t, boxes, "y", 2, 2, 2)
		only(boxes, 0, 1, 2)
		c := limited("a", 2)
		g := try(t, l, c)
		require.Equal(t, guard.Busy, g.State)
		require.True(t, g.Contested)
		time.Sleep(time.Second)
		requireSeats(t, boxes, c, 0, 0, 0, 0, 0)
	})
}

// Some nodes had fewer holders, and have granted a smaller seat.
func TestSeats_nodesWithAnotherSeatThanTheMajorityAreCorrected(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, l *redlock.Locker, boxes []*box) {
		occupy(t, boxes, "x", 3, 1, 0, 1, 2)
		boxes[4].answerAfter(func() time.Duration { return 50 * time.Millisecond })
		c := sit(t, l, "a", 3)
		require.Equal(t, 2, c.Seat)
		time.Sleep(time.Second)
		requireSeats(t, boxes, c, 2, 2, 2, 2, 2)
		requireHeld(t, boxes, c, 0, 1, 2, 3, 4)
	})
}

// A node that has the claim under another seat grants the lease's seat to others.
func TestSeats_aNodeWithAnotherSeatIsNotCountedByRenewals(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, l *redlock.Locker, boxes []*box) {
		only(boxes, 0, 1, 2)
		c := sit(t, l, "a", 2)
		time.Sleep(time.Second)
		only(boxes, 0, 1, 2, 3, 4)
		occupy(t, boxes, "a", 2, 2, 3, 4)
		held, err := l.Renew(t.Context(), c)
		require.NoError(t, err)
		require.True(t, held)
		time.Sleep(time.Second)
		held, err = l.Renew(t.Context(), c)
		require.NoError(t, err)
		require.True(t, held)
		time.Sleep(time.Second)
		requireSeats(t, boxes, c, 1, 1, 1, 1, 1)

		for _, b := range boxes[2:] {
			_, _ = b.Release(t.Context(), c, guard.After{})
		}
		occupy(t, boxes, "a", 2, 2, 3, 4)
		held, err = l.Renew(t.Context(), c)
		require.NoError(t, err)
		require.False(t, held, "two nodes hold it")
	})
}

func TestSeats_fencesOfASeatGrowOnOtherMajorities(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, l *redlock.Locker, boxes []*box) {
		boxes[0].ahead = time.Minute
		var last uint64
		for i, up := range [][]int{{0, 1, 2}, {2, 3, 4}, {0, 2, 4}, {1, 2, 3}, {0, 3, 4}, {1, 2, 4}} {
			only(boxes, up...)
			other := sit(t, l, fmt.Sprint("other", i), 2)
			c := sit(t, l, fmt.Sprint("c", i), 2)
			require.Equal(t, []int{1, 2}, []int{other.Seat, c.Seat})
			require.Greater(t, c.Fence, last)
			last = c.Fence
			time.Sleep(time.Second)
			release(t, l, c)
			release(t, l, other)
		}
	})
}

// Contested means that no claims hold all seats on a majority.
func TestSeats_aKeyIsContestedIfItsSeatsAreTakenByPartsOfQuorums(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, l *redlock.Locker, boxes []*box) {
		for i := range boxes {
			occupy(t, boxes, string(rune('a'+i)), 2, 1, i)
			occupy(t, boxes, string(rune('a'+(i+1)%5)), 2, 2, i)
		}
		require.True(t, try(t, l, limited("late", 2)).Contested)
	})
	inBubble(t, 5, func(t *testing.T, l *redlock.Locker, _ []*box) {
		sit(t, l, "a", 2)
		sit(t, l, "b", 2)
		synctest.Wait()
		g := try(t, l, limited("late", 2))
		require.Equal(t, guard.Busy, g.State)
		require.False(t, g.Contested)
	})
}

func TestSeats_aRepeatedClaimKeepsItsSeat(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, l *redlock.Locker, boxes []*box) {
		first := sit(t, l, "first", 3)
		second := sit(t, l, "second", 3)
		synctest.Wait()
		release(t, l, first)
		for range 3 {
			g := try(t, l, limited("second", 3))
			require.True(t, g.Held)
			require.Equal(t, []uint64{second.Fence, 2}, []uint64{g.Fence, uint64(g.Seat)})
		}
		requireSeats(t, boxes, second, 2, 2, 2, 2, 2)
	})
}

// A lateNode carries out a release after it has reported that it could not.
type lateNode struct{ *memory.Locker }

func (n lateNode) Release(_ context.Context, c guard.Claim, after guard.After) (bool, error) {
	time.AfterFunc(100*time.Millisecond, func() { _, _ = n.Locker.Release(context.Background(), c, after) })
	return false, guardtest.Fail(driver.KindConnection)
}

// A claim that is wanted is made again with its ID. A node that may still carry out the release of
// what it granted before must not count.
func TestTryAcquire_doesNotCountANodeWhereTheClaimMayBeReleasedYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		boxes := make([]*box, 4)
		for i := range boxes {
			boxes[i] = &box{store: memory.New(), asked: map[driver.Op]int{}}
		}
		late := lateNode{memory.New()}
		l := redlock.New(append(nodesOf(boxes), late))
		for _, b := range boxes[:3] {
			take(t, b, shared("reader"))
		}
		require.True(t, try(t, l, waiting("writer")).Wanted)
		synctest.Wait() // the grants of nodes 3 and 4 are released
		_, err := boxes[2].Release(t.Context(), shared("reader"), guard.After{})
		require.NoError(t, err)
		only(boxes, 2, 3)
		_, err = l.TryAcquire(t.Context(), waiting("writer"))
		require.Error(t, err)
		time.Sleep(time.Second)
		_, err = l.TryAcquire(t.Context(), waiting("writer 2"))
		require.NoError(t, err)
		time.Sleep(time.Hour)
	})
}
