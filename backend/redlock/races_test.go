package redlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/redlock"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
)

func TestLong_ofTwoThatMeetExactlyOneRuns(t *testing.T) {
	leftout.IfShort(t)
	for _, n := range []int{3, 4, 5, 6} {
		t.Run(fmt.Sprintf("%d nodes in memory", n), func(t *testing.T) {
			inBubble(t, n, func(t *testing.T, l *redlock.Locker, boxes []*box) {
				for _, b := range boxes {
					b.answerAfter(func() time.Duration { return time.Duration(rand.Int64N(int64(2 * time.Millisecond))) })
				}
				contend(t, 200, newGuard(t, l), newGuard(t, redlock.New(nodesOf(boxes))))
			})
		})
	}
	t.Run("five servers", func(t *testing.T) {
		q := startQuorum(t, 5)
		contend(t, 100, newGuard(t, q.locker(t)), newGuard(t, q.locker(t)))
	})
	t.Run("four servers", func(t *testing.T) {
		q := startQuorum(t, 4)
		contend(t, 100, newGuard(t, q.locker(t)), newGuard(t, q.locker(t)))
	})
}

// contend has the Guards take one key at the same time, again and again. The Guard that gets the
// key keeps it until the other has been refused.
func contend(t *testing.T, rounds int, guards ...*guard.Guard) {
	for _, g := range guards { // the servers are known then
		require.NoError(t, g.Do(t.Context(), "warm", nothing))
	}
	for round := range rounds {
		var ran atomic.Int32
		refused := make(chan struct{})
		results := make(chan error, len(guards))
		for _, g := range guards {
			go func() {
				results <- g.Do(t.Context(), fmt.Sprint("k", round), func(ctx context.Context) error {
					ran.Add(1)
					select {
					case <-refused:
					case <-ctx.Done():
					}
					return context.Cause(ctx)
				})
			}()
		}
		for range guards[1:] {
			select {
			case err := <-results:
				require.ErrorIs(t, err, guard.ErrBusy, "round %d", round)
			case <-time.After(20 * time.Second):
				require.Failf(t, "nobody was refused", "round %d: %d run", round, ran.Load())
			}
		}
		close(refused)
		require.NoError(t, <-results, "round %d: somebody must run", round)
		require.EqualValues(t, 1, ran.Load(), "round %d", round)
	}
}
