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
)

// pairs calls f with every two of five.
func pairs(f func(i, j int)) {
	for i := range 5 {
		for j := range i {
			f(i, j)
		}
	}
}

func TestRelease_aMarkerOnAMajorityIsFoundWhateverTwoNodesAreDown(t *testing.T) {
	for name, fault := range map[string]func(*box){"down": (*box).kill, "frozen": (*box).freeze} {
		t.Run(name, func(t *testing.T) {
			pairs(func(i, j int) {
				inBubble(t, 5, func(t *testing.T, l *redlock.Locker, boxes []*box) {
					g := newGuard(t, l, guard.WithTTL(time.Second))
					lease, err := g.Acquire(t.Context(), "once", guard.WithOnce(time.Hour))
					require.NoError(t, err)
					hold, err := g.Acquire(t.Context(), "hold", guard.WithMinHold(time.Hour))
					require.NoError(t, err)
					synctest.Wait()
					require.NoError(t, lease.SetRecord([]byte("the answer")))
					fault(boxes[i])
					fault(boxes[j])
					require.NoError(t, lease.Complete(t.Context()))
					require.NoError(t, hold.Release(t.Context()))
					time.Sleep(10 * time.Second) // until those two have let go of the leases
					other := newGuard(t, redlock.New(nodesOf(boxes)), guard.WithTTL(time.Second))
					pairs(func(k, m int) {
						for _, b := range boxes {
							b.heal()
						}
						time.Sleep(10 * time.Second)
						fault(boxes[k])
						fault(boxes[m])
						var done *guard.DoneError
						require.ErrorAs(t, other.Do(t.Context(), "once", nothing), &done, "down: %d, %d, then %d, %d", i, j, k, m)
						require.Equal(t, "the answer", string(done.Record))
						require.ErrorIs(t, other.Do(t.Context(), "hold", nothing), guard.ErrBusy, "down: %d, %d, then %d, %d", i, j, k, m)
					})
				})
			})
		})
	}
}

func TestRelease_aMarkerThatReachesNoMajorityIsAFailedRelease(t *testing.T) {
	for name, fault := range map[string]func(*box){"down": (*box).kill, "frozen": (*box).freeze} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 5, func(t *testing.T, l *redlock.Locker, boxes []*box) {
				g := newGuard(t, l)
				heal := func() {
					for _, b := range boxes {
						b.heal()
					}
				}
				err := g.Do(t.Context(), "k", func(context.Context) error {
					synctest.Wait() // until all five have it
					for _, b := range boxes[:3] {
						fault(b)
					}
					if name == "frozen" { // the call waits for as long as the lease lasts
						time.AfterFunc(4*time.Second, heal)
					}
					return nil
				}, guard.WithOnce(time.Hour))
				if name == "frozen" {
					require.NoError(t, err)
				} else {
					var uncertain *guard.MarkerError
					require.ErrorAs(t, err, &uncertain)
					requireNoQuorum(t, uncertain.Err, driver.OpRelease)
					require.True(t, guard.Ran(err))
					heal()
				}
				time.Sleep(5 * time.Second) // the Guard goes on trying
				for i, b := range boxes {
					require.Equal(t, driver.Done, look(t, b, "k").state, "node %d", i)
				}
			})
		})
	}
}

func TestRelease_waitsForNoSlowNodeAndReachesItAllTheSame(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, l *redlock.Locker, boxes []*box) {
		for _, b := range boxes[3:] {
			b.answerAfter(func() time.Duration { return time.Second })
		}
		c := take(t, l, claimOf("k", "a"))
		record := []byte("the answer")
		start := time.Now()
		held, err := l.Release(t.Context(), c, driver.After{Keep: time.Hour, Done: true, Record: record})
		require.NoError(t, err)
		require.True(t, held)
		require.Zero(t, time.Since(start))
		copy(record, "overwritten")
		time.Sleep(3 * time.Second)
		for i, b := range boxes {
			g, err := b.TryAcquire(t.Context(), claimOf("k", "b"))
			require.NoError(t, err)
			require.Equal(t, driver.Done, g.State, "node %d", i)
			require.Equal(t, "the answer", string(g.Record), "node %d has the record as it was", i)
		}
	})
}

func TestRelease_byANodeThatHadNoAnswerIsRepeated(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, l *redlock.Locker, boxes []*box) {
		c := take(t, l, claimOf("k", "a"))
		synctest.Wait()
		boxes[4].kill()
		held, err := l.Release(t.Context(), c, driver.After{})
		require.NoError(t, err)
		require.True(t, held)
		requireHeld(t, boxes, c, 4)
		boxes[4].heal()
		time.Sleep(time.Second)
		requireHeld(t, boxes, c)
	})
}

func TestRelease_saysWhetherAMajorityHeld(t *testing.T) {
	for _, flushed := range []int{0, 2, 3, 5} {
		t.Run(fmt.Sprint(flushed, " of 5 forgot"), func(t *testing.T) {
			inBubble(t, 5, func(t *testing.T, l *redlock.Locker, boxes []*box) {
				c := take(t, l, claimOf("k", "a"))
				synctest.Wait()
				for _, b := range boxes[:flushed] {
					b.flush()
				}
				held, err := l.Release(t.Context(), c, driver.After{Keep: time.Hour, Done: true})
				require.NoError(t, err)
				require.Equal(t, flushed <= 2, held)
			})
		})
	}
}
