package redlock_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/redlock"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

func TestRenew_takesBackTheNodesThatForgotOrWereAway(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, l *redlock.Locker, boxes []*box) {
		boxes[4].kill()
		c := take(t, l, claimOf("k", "a"))
		requireHeld(t, boxes, c, 0, 1, 2, 3)
		boxes[4].heal()
		boxes[0].flush()
		held, err := l.Renew(t.Context(), c)
		require.NoError(t, err)
		require.True(t, held)
		requireHeld(t, boxes, c, 0, 1, 2, 3, 4)

		boxes[2].flush() // nodes that acquired the claim again count from the next renewal on
		boxes[3].flush()
		held, err = l.Renew(t.Context(), c)
		require.NoError(t, err)
		require.True(t, held)
		requireHeld(t, boxes, c, 0, 1, 2, 3, 4)
	})
}

func TestRenew_acquiresTheClaimAgainOnceAtANodeThatForgot(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, l *redlock.Locker, boxes []*box) {
		c := take(t, l, claimOf("k", "a"))
		requireHeld(t, boxes, c, 0, 1, 2, 3, 4)
		boxes[2].flush()
		boxes[4].answerAfter(func() time.Duration { return 20 * time.Millisecond })
		before := boxes[2].count(driver.OpAcquire)
		held, err := l.Renew(t.Context(), c)
		require.NoError(t, err)
		require.True(t, held)
		time.Sleep(time.Second) // virtual
		require.Equal(t, before+1, boxes[2].count(driver.OpAcquire))
		requireHeld(t, boxes, c, 0, 1, 2, 3, 4)
	})
}

// A node whose clock is ahead grants the claim late, under a fence above the one that it has by
// then. It has to release the claim and acquire it again. In between, it would grant the key to
// another claim. Found by the simulation.
func TestRenew_doesNotCountANodeThatHasYetToReleaseTheClaim(t *testing.T) {
	for name, c := range map[string]struct {
		// how long these calls take at that node, which does them at half of that time
		acquire, release, renew time.Duration
		at                      time.Duration // when it is renewed
	}{
		"its vote is to come":             {acquire: 400 * time.Millisecond, at: 300 * time.Millisecond},
		"its release is under way":        {acquire: 20 * time.Millisecond, release: 400 * time.Millisecond, at: 100 * time.Millisecond},
		"its release precedes its answer": {acquire: 20 * time.Millisecond, release: 40 * time.Millisecond, renew: 250 * time.Millisecond, at: 30 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 5, func(t *testing.T, _ *redlock.Locker, boxes []*box) {
				boxes[3].ahead = time.Hour
				odd := &oddNode{box: boxes[3], acquire: c.acquire, release: c.release, renew: c.renew}
				nodes := nodesOf(boxes)
				nodes[3] = odd
				l := redlock.New(nodes)
				boxes[4].kill()
				claim := take(t, l, claimOf("k", "a"))
				boxes[2].kill()
				time.Sleep(c.at) // virtual: it has granted it by now
				_, err := l.Renew(t.Context(), claim)
				requireNoQuorum(t, err, driver.OpRenew)
				require.True(t, odd.said.Load(), "it did say that it holds the claim")
				odd.settle()
				time.Sleep(time.Second) // virtual: it was notified
				held, err := l.Renew(t.Context(), claim)
				require.NoError(t, err)
				require.True(t, held, "it counts from now on")
				require.Equal(t, claim.Fence, boxes[3].fence(t, "k", "a"), "it has it under the right fence")
			})
		})
	}
}

func TestRenew_isRefusedByThoseThatAnswerAfterOneThatHasYetToGiveTheClaimBack(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, _ *redlock.Locker, boxes []*box) {
		odd := &oddNode{box: boxes[4], acquire: 2 * time.Second}
		nodes := nodesOf(boxes)
		nodes[4] = odd
		for _, slow := range []int{2, 3} {
			nodes[slow] = &oddNode{box: boxes[slow], renew: 500 * time.Millisecond}
		}
		l := redlock.New(nodes)
		claim := take(t, l, claimOf("k", "a"))
		// virtual: the odd one has granted it, and has not said so
		time.Sleep(1500 * time.Millisecond)
		for _, b := range boxes[:4] {
			b.flush()
		}
		held, err := l.Renew(t.Context(), claim)
		require.NoError(t, err, "the slow are waited for: with them, a majority has it no more")
		require.False(t, held)
		require.True(t, odd.said.Load())
	})
}

// An oddNode takes its time for some calls, until it has settled. A renewal is done at once, and
// said late.
type oddNode struct {
	*box
	acquire, release, renew time.Duration
	settled, said           atomic.Bool
}

func (n *oddNode) settle() { n.settled.Store(true) }

func (n *oddNode) wait(d time.Duration) {
	if !n.settled.Load() {
		time.Sleep(d) // virtual
	}
}

func (n *oddNode) TryAcquire(ctx context.Context, c driver.Claim) (driver.Answer, error) {
	defer n.wait(n.acquire / 2)
	n.wait(n.acquire / 2)
	return n.box.TryAcquire(ctx, c)
}

func (n *oddNode) Release(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
	defer n.wait(n.release / 2)
	n.wait(n.release / 2)
	return n.box.Release(ctx, c, after)
}

func (n *oddNode) Start(
	ctx context.Context, op driver.Op, claims []driver.Claim, after driver.After, done func(i int, a driver.Answer, err error),
) {
	driver.Each{Locker: n}.Start(ctx, op, claims, after, done)
}

func (n *oddNode) Renew(ctx context.Context, c driver.Claim) (bool, error) {
	defer n.wait(n.renew)
	held, err := n.box.Renew(ctx, c)
	if held {
		n.said.Store(true)
	}
	return held, err
}

func TestRenew_aMajorityThatForgotIsALossAndNothingIsAcquiredAgain(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, l *redlock.Locker, boxes []*box) {
		c := take(t, l, claimOf("k", "a"))
		synctest.Wait()
		for _, b := range boxes[:3] {
			b.flush()
		}
		held, err := l.Renew(t.Context(), c)
		require.NoError(t, err, "it is certain, not a failure")
		require.False(t, held, "though every node would have taken it back")
		time.Sleep(10 * time.Second)
		requireHeld(t, boxes, c, 3, 4)
		next := take(t, l, claimOf("other", "b"))
		require.Greater(t, next.Fence, c.Fence)
	})
}

func TestRenew_withoutAMajorityOfAnswersIsAnErrorAndNoLoss(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, l *redlock.Locker, boxes []*box) {
		c := take(t, l, claimOf("k", "a"))
		synctest.Wait()
		boxes[0].flush()
		boxes[1].kill()
		boxes[2].kill()
		start := time.Now()
		_, err := l.Renew(t.Context(), c)
		requireNoQuorum(t, err, driver.OpRenew)
		require.Zero(t, time.Since(start))
		boxes[1].heal()
		boxes[2].heal()
		synctest.Wait()
		held, err := l.Renew(t.Context(), c)
		require.NoError(t, err)
		require.True(t, held)
		requireHeld(t, boxes, c, 0, 1, 2, 3, 4)
	})
}

func TestRenew_raisesTheNodesThatGrantedALowerFence(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, l *redlock.Locker, boxes []*box) {
		boxes[0].ahead = time.Second
		c := take(t, l, claimOf("k", "a"))
		synctest.Wait()
		held, err := l.Renew(t.Context(), c)
		require.NoError(t, err)
		require.True(t, held)
		requireHeld(t, boxes, c, 0, 1, 2, 3, 4)
	})
}

// The node forgets, its answer to the renewal comes before or after the release, and it takes some
// time to take the claim in again.
func TestRenew_doesNotBringBackAClaimWhoseReleaseHasBegun(t *testing.T) {
	for _, slow := range []string{"renewal", "take-back", "both"} {
		for _, gone := range []time.Duration{50 * time.Millisecond, 150 * time.Millisecond, 250 * time.Millisecond} {
			t.Run(fmt.Sprintf("slow %s, released after %v", slow, gone), func(t *testing.T) {
				inBubble(t, 5, func(t *testing.T, _ *redlock.Locker, boxes []*box) {
					late := func(what string) {
						if slow == what || slow == "both" {
							time.Sleep(100 * time.Millisecond)
						}
					}
					node := &guardtest.Scripted{
						Inner: boxes[4],
						OnRenew: func(context.Context, int, driver.Claim) (bool, error) {
							late("renewal")
							return false, guardtest.ErrUnscripted
						},
						OnAcquire: func(_ context.Context, n int, _ driver.Claim) (driver.Answer, error) {
							if n > 1 {
								late("take-back")
							}
							return driver.Answer{}, guardtest.ErrUnscripted
						},
					}
					l := redlock.New(append(nodesOf(boxes[:4]), node))
					c := take(t, l, claimOf("k", "a"))
					synctest.Wait()
					boxes[4].flush()
					held, err := l.Renew(t.Context(), c)
					require.NoError(t, err)
					require.True(t, held)
					time.Sleep(gone - 50*time.Millisecond)
					held, err = l.Release(t.Context(), c, driver.After{})
					require.NoError(t, err)
					require.True(t, held)
					time.Sleep(10 * time.Second)
					requireHeld(t, boxes, c)
				})
			})
		}
	}
}

// The answer that decides a renewal is held back until the last answer has come and the claim is
// released. Only then does it have a node that forgot the claim acquire it again.
func TestStart_doesNotBringBackAClaimThatIsReleasedAfterTheLastAnswer(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, l *redlock.Locker, boxes []*box) {
		c := take(t, l, claimOf("k", "a"))
		synctest.Wait()
		boxes[0].flush()
		for i, b := range boxes { // box 0 answers first, box 3 decides, and box 4 is the last
			b.answerAfter(func() time.Duration { return time.Duration(i) * 10 * time.Millisecond })
		}
		start := time.Now()
		released := false
		l.Start(t.Context(), driver.OpRenew, []driver.Claim{c}, driver.After{}, func(_ int, a driver.Answer, err error) {
			require.NoError(t, err)
			require.True(t, a.Held)
			require.Equal(t, 30*time.Millisecond, time.Since(start))
			time.Sleep(20 * time.Millisecond)
			released, err = l.Release(t.Context(), c, driver.After{})
			require.NoError(t, err)
		})
		time.Sleep(10 * time.Second)
		requireHeld(t, boxes, c)
		require.True(t, released)
	})
}

func TestStart_aFrozenNodeDelaysNobodyAndEachIsAnsweredOnce(t *testing.T) {
	const leases = 1000
	for name, bare := range map[string]bool{"in batches": false, "one by one": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 5, func(t *testing.T, l *redlock.Locker, boxes []*box) {
				if bare {
					var nodes []guard.Locker
					for _, b := range boxes {
						nodes = append(nodes, &guardtest.Scripted{Inner: b})
					}
					l = redlock.New(nodes)
				}
				var claims []driver.Claim
				for i := range leases {
					claims = append(claims, take(t, l, claimOf(fmt.Sprint("k", i), fmt.Sprint("a", i))))
				}
				synctest.Wait()
				for i := range leases / 10 { // these are lost
					for _, b := range boxes[1:] {
						_, err := b.Release(t.Context(), claims[i*10], driver.After{})
						require.NoError(t, err)
					}
				}
				boxes[0].freeze()
				var reports [leases]atomic.Int32
				start := time.Now()
				l.Start(t.Context(), driver.OpRenew, claims, driver.After{}, func(i int, a driver.Answer, err error) {
					require.NoError(t, err)
					require.Equal(t, i%10 != 0, a.Held, "claim %d", i)
					reports[i].Add(1)
				})
				synctest.Wait()
				for i := range reports {
					require.EqualValues(t, 1, reports[i].Load(), "answers to claim %d", i)
				}
				require.Zero(t, time.Since(start))
				boxes[0].heal()
				time.Sleep(10 * time.Second)
				for i := range reports {
					require.EqualValues(t, 1, reports[i].Load(), "answers to claim %d", i)
				}
			})
		})
	}
}

func TestStart_endsWithItsContextAndEachIsAnsweredOnce(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, l *redlock.Locker, boxes []*box) {
		claims := []driver.Claim{take(t, l, claimOf("k", "a")), take(t, l, claimOf("l", "b"))}
		synctest.Wait()
		for _, b := range boxes[:3] {
			b.freeze()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		var reports [2]atomic.Int32
		l.Start(ctx, driver.OpRenew, claims, driver.After{}, func(i int, _ driver.Answer, err error) {
			requireNoQuorum(t, err, driver.OpRenew)
			require.Equal(t, time.Second, time.Since(start))
			reports[i].Add(1)
		})
		<-ctx.Done()
		synctest.Wait()
		cancel()
		driver.Await(ctx, l, driver.OpRenew, claims, driver.After{}, func(i int, _ driver.Answer, err error) {
			require.ErrorIs(t, err, guard.ErrStore)
			reports[i].Add(1)
		})
		for _, b := range boxes {
			b.heal()
		}
		time.Sleep(10 * time.Second)
		require.EqualValues(t, 2, reports[0].Load())
		require.EqualValues(t, 2, reports[1].Load())
	})
}
