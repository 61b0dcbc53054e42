package redlock_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/redlock"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

func TestTryAcquire_needsMoreThanHalfOfTheNodesAndWaitsForNoOther(t *testing.T) {
	for _, c := range []struct{ nodes, spare int }{{3, 1}, {4, 1}, {5, 2}, {6, 2}, {7, 3}} {
		for name, fault := range map[string]func(*box){"down": (*box).kill, "frozen": (*box).freeze} {
			for broken := c.spare; broken <= c.spare+1; broken++ {
				t.Run(fmt.Sprintf("%d of %d %s", broken, c.nodes, name), func(t *testing.T) {
					inBubble(t, c.nodes, func(t *testing.T, l *redlock.Locker, boxes []*box) {
						for _, b := range boxes[:broken] {
							fault(b)
						}
						start := time.Now()
						if broken == c.spare {
							claim := take(t, l, claimOf("k", "a"))
							held, err := l.Renew(t.Context(), claim)
							require.NoError(t, err)
							require.True(t, held)
							held, err = l.Release(t.Context(), claim, driver.After{})
							require.NoError(t, err)
							require.True(t, held)
							require.Zero(t, time.Since(start), "nobody has waited for the slow")
							return
						}
						ctx, cancel := context.WithTimeout(t.Context(), time.Second)
						defer cancel()
						_, err := l.TryAcquire(ctx, claimOf("k", "a"))
						requireNoQuorum(t, err, driver.OpAcquire)
						if name == "down" {
							require.Zero(t, time.Since(start), "it fails as soon as it cannot win")
						}
						for _, b := range boxes {
							b.heal()
						}
						time.Sleep(3 * time.Second) // for what was on its way
						for i, b := range boxes {
							require.Zero(t, b.fence(t, "k", "a"), "node %d", i)
						}
					})
				})
			}
		}
	}
}

func requireNoQuorum(t testing.TB, err error, op driver.Op) {
	t.Helper()
	var failed *guard.StoreError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, driver.KindQuorum, failed.Kind, "%v", err)
	require.Equal(t, op, failed.Op)
}

func TestTryAcquire_aMajorityThatGrantsTooLateIsNone(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, l *redlock.Locker, boxes []*box) {
		c := claimOf("k", "a")
		for _, b := range boxes[:3] {
			delay := c.TTL - c.TTL/100 - time.Millisecond // of the first answer only
			b.answerAfter(func() time.Duration { defer func() { delay = 0 }(); return delay })
		}
		_, err := l.TryAcquire(t.Context(), c)
		var failed *guard.StoreError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, driver.KindTimeout, failed.Kind)
		synctest.Wait()
		for i, b := range boxes {
			require.Equal(t, 1, b.count(driver.OpRelease), "it was released")
			require.Zero(t, b.fence(t, "k", "a"), "node %d", i)
		}
	})
}

func TestTryAcquire_releasesAGrantThatArrivesAfterALostBallot(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, l *redlock.Locker, boxes []*box) {
		for _, b := range boxes[:3] {
			take(t, b, claimOf("k", "other"))
		}
		boxes[4].answerAfter(func() time.Duration { return 2 * time.Second })
		g, err := l.TryAcquire(t.Context(), claimOf("k", "a"))
		require.NoError(t, err)
		require.Equal(t, driver.Busy, g.State)
		require.Equal(t, "other", g.Holder)
		require.NotEqual(t, driver.Undecided, g.Reason)
		time.Sleep(time.Second + 500*time.Millisecond)
		require.NotZero(t, boxes[4].fence(t, "k", "a"), "its answer is on the way")
		time.Sleep(2 * time.Second)
		for _, b := range boxes[3:] {
			require.Zero(t, b.fence(t, "k", "a"))
		}
	})
}

func TestTryAcquire_replacesAHigherGrantThatArrivesAfterTheWin(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, l *redlock.Locker, boxes []*box) {
		boxes[3].ahead = time.Second
		boxes[3].answerAfter(func() time.Duration { return time.Second })
		c := take(t, l, claimOf("k", "a"))
		time.Sleep(700 * time.Millisecond)
		require.Greater(t, boxes[3].fence(t, "k", "a"), c.Fence)
		time.Sleep(time.Second)
		require.Zero(t, boxes[3].fence(t, "k", "a"), "a call that joins would take it for the fence")
		time.Sleep(2 * time.Second)
		requireHeld(t, boxes, c, 0, 1, 2, 3, 4)
		require.Equal(t, 1, boxes[3].count(driver.OpRelease))
	})
}

// A lost ballot may still have to undo its vote at a slow node. It must not undo the vote of the
// next ballot.
func TestTryAcquire_whatALateAnswerUndoesIsNotTheNextTry(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, _ *redlock.Locker, boxes []*box) {
		fails := &guardtest.Scripted{Inner: boxes[0], OnAcquire: func(ctx context.Context, n int, c driver.Claim) (driver.Answer, error) {
			if n == 1 {
				return driver.Answer{}, guardtest.Fail(driver.KindOther)
			}
			return boxes[0].TryAcquire(ctx, c)
		}}
		boxes[1].kill()
		boxes[2].kill()
		for _, b := range boxes[3:] {
			b.answerAfter(func() time.Duration { return 100 * time.Millisecond })
		}
		l := redlock.New([]guard.Locker{fails, boxes[1], boxes[2], boxes[3], boxes[4]})
		c := claimOf("k", "a")
		_, err := l.TryAcquire(t.Context(), c)
		requireNoQuorum(t, err, driver.OpAcquire)
		c = take(t, l, c)
		time.Sleep(5 * time.Second)
		for _, i := range []int{0, 3, 4} {
			require.Equal(t, c.Fence, boxes[i].fence(t, "k", "a"), "node %d", i)
		}
	})
}

// A minimum hold is shorter than the lease was, and has not come to all nodes yet.
func TestTryAcquire_takesAnotherLookWhereTheNodesDifferInWhatIsLeft(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, l *redlock.Locker, boxes []*box) {
		c := take(t, l, claimOf("k", "a"))
		synctest.Wait()
		for _, b := range boxes[2:] {
			_, err := b.Release(t.Context(), c, driver.After{Keep: 10 * time.Second})
			require.NoError(t, err)
			b.answerAfter(func() time.Duration { return time.Millisecond })
		}
		boxes[2].answerAfter(nil)
		g, err := l.TryAcquire(t.Context(), claimOf("k", "b"))
		require.NoError(t, err)
		require.Equal(t, driver.Busy, g.State)
		require.LessOrEqual(t, g.Left, 10*time.Second)
	})
}

func TestTryAcquire_saysThatTheWorkIsDoneIfAnyNodeKnows(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, l *redlock.Locker, boxes []*box) {
		c := take(t, boxes[4], claimOf("k", "old"))
		_, err := boxes[4].Release(t.Context(), c, driver.After{Keep: time.Hour, Done: true, Record: []byte("r")})
		require.NoError(t, err)
		for _, b := range boxes[:2] {
			b.freeze()
		}
		g, err := l.TryAcquire(t.Context(), claimOf("k", "a"))
		require.NoError(t, err)
		require.Equal(t, driver.Done, g.State)
		require.Equal(t, "r", string(g.Record))
	})
}

func TestTryAcquire_saysThatTheWorkIsDoneIfOnlyOneNodeAnswersAndLate(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, l *redlock.Locker, boxes []*box) {
		c := take(t, boxes[4], claimOf("k", "old"))
		_, err := boxes[4].Release(t.Context(), c, driver.After{Keep: time.Hour, Done: true})
		require.NoError(t, err)
		boxes[4].answerAfter(func() time.Duration { return 50 * time.Millisecond })
		for _, b := range boxes[:4] {
			b.freeze()
		}
		start := time.Now()
		require.Equal(t, driver.Done, try(t, l, claimOf("k", "a")).State)
		require.Less(t, time.Since(start), time.Second)
	})
}

// The marker of an earlier run reached two nodes so late that it is gone on the others, where
// another claim holds the key.
func TestTryAcquire_aMarkerThatAMajorityHasForgottenIsNoAnswerToAHolder(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, l *redlock.Locker, boxes []*box) {
		for _, b := range boxes[3:] {
			old := take(t, b, claimOf("k", "old"))
			_, err := b.Release(t.Context(), old, driver.After{Keep: time.Hour, Done: true})
			require.NoError(t, err)
		}
		c := claimOf("k", "a")
		for _, b := range boxes[:3] {
			take(t, b, c)
			b.answerAfter(func() time.Duration { return time.Millisecond })
		}
		g, err := l.TryAcquire(t.Context(), c)
		require.NoError(t, err)
		require.Equal(t, driver.Granted, g.State)
		require.True(t, g.Held)
		for i, b := range boxes[:3] {
			require.NotZero(t, b.fence(t, "k", "a"), "node %d still has it", i)
		}
	})
}

func TestTryAcquire_aRepeatedClaimWaitsForSlowNodesThatMayHoldIt(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, l *redlock.Locker, boxes []*box) {
		c := claimOf("k", "a")
		for i, holder := range []string{"a", "a", "a", "b", "b"} {
			take(t, boxes[i], claimOf("k", holder))
		}
		for _, b := range boxes[1:3] {
			b.answerAfter(func() time.Duration { return 300 * time.Millisecond })
		}
		g, err := l.TryAcquire(t.Context(), c)
		require.NoError(t, err)
		require.Equal(t, driver.Granted, g.State, "two are busy, but the other three hold it")
		require.True(t, g.Held)
		synctest.Wait()
		for i, b := range boxes[:3] {
			require.NotZero(t, b.fence(t, "k", "a"), "node %d still has it", i)
		}
	})
}

// A majority has the fence of a claim. Others were late, and granted it under a higher one.
func TestTryAcquire_aClaimThatIsRepeatedHasTheFenceOfTheMajority(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, l *redlock.Locker, boxes []*box) {
		c := take(t, l, claimOf("k", "a"))
		synctest.Wait() // all nodes have been asked
		for _, b := range boxes[3:] {
			_, err := b.Release(t.Context(), c, driver.After{})
			require.NoError(t, err)
			higher := claimOf("k", "a")
			higher.Fence = c.Fence + 1000
			take(t, b, higher)
		}
		boxes[2].answerAfter(func() time.Duration { return 50 * time.Millisecond })
		again, err := l.TryAcquire(t.Context(), claimOf("k", "a"))
		require.NoError(t, err)
		require.True(t, again.Held)
		require.Equal(t, c.Fence, again.Fence)
	})
}

func TestTryAcquire_aSplitVoteIsContestedAndWaitsOnlyALittleForTheSlow(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, l *redlock.Locker, boxes []*box) {
		for i, holder := range []string{"b", "b", "c", "c"} {
			take(t, boxes[i], claimOf("k", holder))
		}
		boxes[4].freeze()
		start := time.Now()
		g, err := l.TryAcquire(t.Context(), claimOf("k", "a"))
		require.NoError(t, err)
		require.Equal(t, driver.Busy, g.State)
		require.Equal(t, driver.Undecided, g.Reason)
		require.Equal(t, 5*time.Millisecond, time.Since(start))
	})
}

// Two have come to different nodes of those that answer: neither waits for the others.
func TestTryAcquire_aSplitVoteAmongThoseThatAnswerWaitsOnlyALittleForTheSlow(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, l *redlock.Locker, boxes []*box) {
		take(t, boxes[0], claimOf("k", "b"))
		boxes[3].freeze()
		boxes[4].freeze()
		start := time.Now()
		g, err := l.TryAcquire(t.Context(), claimOf("k", "a"))
		require.NoError(t, err)
		require.Equal(t, driver.Busy, g.State)
		require.Equal(t, driver.Undecided, g.Reason)
		require.Equal(t, 5*time.Millisecond, time.Since(start))
	})
}

func TestTryAcquire_leavesWithItsContextAndGivesBack(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, l *redlock.Locker, boxes []*box) {
		for _, b := range boxes[:3] {
			b.freeze()
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		start := time.Now()
		_, err := l.TryAcquire(ctx, claimOf("k", "a"))
		var failed *guard.StoreError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, driver.KindCanceled, failed.Kind)
		require.Equal(t, time.Second, time.Since(start))
		for _, b := range boxes {
			b.heal()
		}
		time.Sleep(5 * time.Second)
		for i, b := range boxes {
			require.Zero(t, b.fence(t, "k", "a"), "node %d", i)
		}
	})
}
