package redlock_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/backend/redlock"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

func (b *box) Show(ctx context.Context, key string) (info driver.KeyInfo, err error) {
	err = b.do(ctx, driver.OpInspect, 1, func(l *memory.Locker) { info, _ = l.Show(context.Background(), key) })
	return info, err
}

func (b *box) Marked(ctx context.Context, keys []string) (marked []bool, err error) {
	err = b.do(ctx, driver.OpInspect, 1, func(l *memory.Locker) { marked, _ = l.Marked(context.Background(), keys) })
	return marked, err
}

func (b *box) Keys(ctx context.Context, prefix, cursor string, n int) (keys []string, next string, err error) {
	err = b.do(ctx, driver.OpInspect, 1, func(l *memory.Locker) { keys, next, _ = l.Keys(context.Background(), prefix, cursor, n) })
	return keys, next, err
}

func (b *box) Break(ctx context.Context, key, id string, by driver.Break) (done bool, err error) {
	err = b.do(ctx, driver.OpInspect, 1, func(l *memory.Locker) { done, _ = l.Break(context.Background(), key, id, by) })
	return done && err == nil, err
}

func (b *box) Forget(ctx context.Context, key string) (done bool, err error) {
	err = b.do(ctx, driver.OpInspect, 1, func(l *memory.Locker) { done, _ = l.Forget(context.Background(), key) })
	return done && err == nil, err
}

// put has the boxes of these numbers grant the key to a claim.
func put(t *testing.T, boxes []*box, c driver.Claim, in ...int) {
	t.Helper()
	for _, i := range in {
		g, err := boxes[i].TryAcquire(t.Context(), c)
		require.NoError(t, err)
		require.Equal(t, driver.Granted, g.State)
	}
}

var byOperator = driver.Break{ID: "operator", Label: "broken"}

func TestInspect_ofAQuorum(t *testing.T) {
	all := []int{0, 1, 2, 3, 4}
	for name, test := range map[string]struct {
		in, down []int // where the claim is, and which nodes are down
		shown    bool
		broken   bool
		fails    bool // a majority may know it, or not
	}{
		"on all":                           {in: all, shown: true, broken: true},
		"on a majority":                    {in: []int{0, 1, 2}, shown: true, broken: true},
		"on a minority":                    {in: []int{0, 1}},
		"on all, and two are down":         {in: all, down: []int{0, 1}, shown: true, broken: true},
		"on a majority, and one is down":   {in: []int{0, 1, 2}, down: []int{0}, shown: true, fails: true},
		"on a minority, and one is down":   {in: []int{0, 1}, down: []int{4}, shown: true, fails: true},
		"on one node, and another is down": {in: []int{0}, down: []int{4}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 5, func(t *testing.T, l *redlock.Locker, boxes []*box) {
				c := driver.Claim{Key: "key", ID: "A", Owner: "A", TTL: time.Minute, Label: "label"}
				put(t, boxes, c, test.in...)
				for _, i := range test.down {
					boxes[i].kill()
				}
				info, err := l.Show(t.Context(), "key")
				require.NoError(t, err)
				if test.shown {
					require.Len(t, info.Holders, 1)
					require.Equal(t, "label", info.Holders[0].Label)
					known := 0
					for _, i := range test.in {
						if !slices.Contains(test.down, i) {
							known++
						}
					}
					require.Equal(t, known, info.Holders[0].Nodes)
				} else {
					require.Equal(t, driver.KeyFree, info.State())
				}
				broken, err := l.Break(t.Context(), "key", "A", byOperator)
				require.Equal(t, test.fails, err != nil, "%v", err)
				require.Equal(t, test.broken, broken)
				if broken {
					for _, i := range test.down {
						boxes[i].heal()
					}
					held, err := l.Renew(t.Context(), c)
					require.NoError(t, err)
					require.False(t, held)
				}
			})
		})
	}
}

func TestInspect_needsAMajority(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, l *redlock.Locker, boxes []*box) {
		for _, b := range boxes[:3] {
			b.kill()
		}
		_, err := l.Show(t.Context(), "key")
		require.ErrorContains(t, err, "3 of 5 nodes failed")
		_, err = l.Break(t.Context(), "key", "A", byOperator)
		require.ErrorIs(t, err, guard.ErrStore)
		_, _, err = l.Keys(t.Context(), "", "", 10)
		require.ErrorIs(t, err, guard.ErrStore)
	})
}

// A slow node is not waited for: what a majority knows is shown.
func TestShow_waitsForAMajority(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, l *redlock.Locker, boxes []*box) {
		c := driver.Claim{Key: "key", ID: "A", Owner: "A", TTL: time.Minute}
		put(t, boxes, c, 0, 1, 2, 3, 4)
		boxes[0].freeze()
		began := time.Now()
		info, err := l.Show(t.Context(), "key")
		require.NoError(t, err)
		require.Equal(t, 4, info.Holders[0].Nodes)
		require.Equal(t, 100*time.Millisecond, time.Since(began))
	})
}

// A minimum hold of which only some nodes know is a lease still, for as long as the others hold it.
func TestShow_aReleaseThatIsUnderWay(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, l *redlock.Locker, boxes []*box) {
		c := driver.Claim{Key: "key", ID: "A", Owner: "A", TTL: time.Minute}
		put(t, boxes, c, 0, 1, 2, 3, 4)
		for i, want := range []driver.KeyState{driver.KeyHeld, driver.KeyHeld, driver.KeyKept} {
			held, err := boxes[i].Release(t.Context(), c, driver.After{Keep: time.Hour})
			require.NoError(t, err)
			require.True(t, held)
			info, err := l.Show(t.Context(), "key")
			require.NoError(t, err)
			require.Equal(t, want, info.State(), "%d nodes know", i+1)
		}
	})
}

// A node that grants the claim late has a fence of its own, until it gets that of the majority.
func TestShow_fenceIsThatOfMostNodes(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, l *redlock.Locker, boxes []*box) {
		c := driver.Claim{Key: "key", ID: "A", Owner: "A", TTL: time.Minute, Fence: 1000}
		put(t, boxes, c, 1, 2, 3)
		for i, fence := range map[int]uint64{0: 2000, 4: 500} {
			c.Fence = fence
			put(t, boxes, c, i)
		}
		info, err := l.Show(t.Context(), "key")
		require.NoError(t, err)
		require.Equal(t, 5, info.Holders[0].Nodes)
		require.EqualValues(t, 1000, info.Holders[0].Fence)
	})
}

// One marker is enough for the work to be done, so that all have to go.
func TestForget_saysThatAMarkerMayBeLeft(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, l *redlock.Locker, boxes []*box) {
		c := driver.Claim{Key: "key", ID: "A", Owner: "A", TTL: time.Minute}
		put(t, boxes, c, 0, 1, 2, 3, 4)
		for _, b := range boxes {
			_, err := b.Release(t.Context(), c, driver.After{Keep: time.Hour, Done: true})
			require.NoError(t, err)
		}
		boxes[4].kill()
		_, err := l.Forget(t.Context(), "key")
		require.ErrorContains(t, err, "node 5")
		boxes[4].heal()
		info, err := l.Show(t.Context(), "key")
		require.NoError(t, err)
		require.Equal(t, driver.KeyDone, info.State())
		forgotten, err := l.Forget(t.Context(), "key")
		require.NoError(t, err)
		require.True(t, forgotten)
		g, err := l.TryAcquire(t.Context(), driver.Claim{Key: "key", ID: "B", Owner: "B", TTL: time.Minute})
		require.NoError(t, err)
		require.Equal(t, driver.Granted, g.State)
		synctest.Wait()
	})
}

// Each key of a majority is listed once, whichever nodes have it and two are down.
func TestKeys_listsEachOnce(t *testing.T) {
	for down := range 6 {
		t.Run(fmt.Sprintf("node %d is down", down+1), func(t *testing.T) {
			inBubble(t, 5, func(t *testing.T, l *redlock.Locker, boxes []*box) {
				var want []string
				for i := range 50 {
					c := driver.Claim{Key: fmt.Sprintf("key %02d", i), ID: fmt.Sprint(i), Owner: fmt.Sprint(i), TTL: time.Minute}
					put(t, boxes, c, i%5, (i+1)%5, (i+2)%5)
					want = append(want, c.Key)
				}
				if down < 5 {
					boxes[down].kill()
					boxes[(down+2)%5].kill()
				}
				for _, n := range []int{7, 1000} {
					var got []string
					for cursor := ""; ; {
						page, next, err := l.Keys(t.Context(), "key", cursor, n)
						require.NoError(t, err)
						got = append(got, page...)
						if cursor = next; next == "" {
							break
						}
					}
					slices.Sort(got)
					require.Equal(t, want, got)
				}
			})
		})
	}
}
