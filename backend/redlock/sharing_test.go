package redlock_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/backend/redlock"
	"github.com/seed-1795987d/onerun/backend/reentrant"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// A plainNode grants a key to one claim at a time.
type plainNode struct{ guard.Locker }

func TestDescribe_refusesLimitsAndNodesThatCannotShare(t *testing.T) {
	l := redlock.New(memories(3))
	require.NoError(t, l.Describe().Shares(driver.Unlimited))
	var refused *guard.SettingError
	require.ErrorAs(t, l.Describe().Shares(2), &refused)
	require.Equal(t, "WithLimit", refused.Setting)
	require.ErrorContains(t, refused, "WithLimit(2): cannot be kept on a quorum, as each of its nodes knows only a part of "+
		"the holders: backend/single, reentrant, postgres and memory can")
	_, err := guard.New(l, guard.WithLimit(5))
	require.ErrorAs(t, err, &refused)

	l = redlock.New(append(memories(2), plainNode{memory.New()}))
	require.ErrorAs(t, l.Describe().Shares(driver.Unlimited), &refused)
	require.ErrorContains(t, refused, "node 3 (redlock_test.plainNode) grants a key to one claim at a time")
}

func shared(id string) driver.Claim {
	c := claimOf("k", id)
	c.MaxHolders = driver.Unlimited
	return c
}

func waiting(id string) driver.Claim {
	c := claimOf("k", id)
	c.Queue = driver.Retried
	return c
}

func try(t *testing.T, l guard.Locker, c driver.Claim) driver.Answer {
	t.Helper()
	g, err := l.TryAcquire(t.Context(), c)
	require.NoError(t, err)
	return g
}

// Two majorities have a node in common.
func TestSharing_aClaimAloneAndOthersExcludeEachOtherOnOtherMajorities(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, l *redlock.Locker, boxes []*box) {
		boxes[3].kill()
		boxes[4].kill()
		reader := take(t, l, shared("reader"))
		time.Sleep(time.Second) // all nodes have been asked
		boxes[3].heal()
		boxes[4].heal()
		boxes[0].kill()
		boxes[1].kill()
		require.Equal(t, driver.Busy, try(t, l, claimOf("k", "writer")).State)
		boxes[0].heal()
		boxes[1].heal()
		time.Sleep(time.Second) // the grants of the refused claim are released
		held, err := l.Release(t.Context(), reader, driver.After{})
		require.NoError(t, err)
		require.True(t, held)
		time.Sleep(time.Second)

		boxes[0].kill()
		boxes[1].kill()
		writer := take(t, l, claimOf("k", "writer 2"))
		require.Greater(t, writer.Fence, reader.Fence)
		time.Sleep(time.Second)
		boxes[0].heal()
		boxes[1].heal()
		boxes[2].kill()
		require.Equal(t, driver.Busy, try(t, l, shared("reader 2")).State)
	})
}

// Each node names another one of the claims that share the key.
func TestSharing_nodesThatNameDifferentHoldersAreNotContested(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, l *redlock.Locker, boxes []*box) {
		for i, b := range boxes {
			for j := range boxes { // in another order on each
				require.Equal(t, driver.Granted, try(t, b, shared(string(rune('a'+(i+j)%5)))).State)
				time.Sleep(time.Millisecond)
			}
		}
		g := try(t, l, claimOf("k", "writer"))
		require.Equal(t, driver.Busy, g.State)
		require.NotEqual(t, driver.Undecided, g.Reason)
		require.NotEqual(t, driver.HeldForClaim, g.Reason)
		require.Equal(t, driver.HeldForClaim, try(t, l, waiting("writer 2")).Reason)
		require.Equal(t, driver.Granted, try(t, l, shared("a")).State, "it shares the key already")
		require.Equal(t, driver.Busy, try(t, l, shared("f")).State)
	})
}

// If few nodes keep others away for a claim, they stop it: the claim is not made again.
func TestSharing_aClaimThatFewNodesWantIsWantedByNone(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, l *redlock.Locker, boxes []*box) {
		take(t, l, shared("reader"))
		time.Sleep(time.Second)
		for _, b := range boxes[:3] {
			require.Equal(t, driver.HeldForClaim, try(t, b, waiting("other")).Reason)
		}
		for _, i := range []int{0, 4} { // their answers come too late to count
			boxes[i].answerAfter(func() time.Duration { return 500 * time.Millisecond })
		}
		g := try(t, l, waiting("writer"))
		require.Equal(t, driver.Busy, g.State)
		require.NotEqual(t, driver.HeldForClaim, g.Reason)
		time.Sleep(5 * time.Second)
		for i, b := range boxes {
			want := driver.Granted
			if i < 3 {
				want = driver.Busy
			}
			require.Equal(t, want, try(t, b, shared("reader 2")).State, "node %d", i)
		}
	})
}

func TestSharing_aClaimThatFewNodesWantSoFarWaitsALittleForTheOthers(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, l *redlock.Locker, boxes []*box) {
		take(t, l, shared("reader"))
		time.Sleep(time.Second)
		require.Equal(t, driver.HeldForClaim, try(t, boxes[0], waiting("other")).Reason)
		for _, b := range boxes[3:] {
			b.answerAfter(func() time.Duration { return 2 * time.Millisecond })
		}
		require.Equal(t, driver.HeldForClaim, try(t, l, waiting("writer")).Reason)
	})
}

func TestSharing_aWriterIsGrantedAfterTheReadersForWhomItWaited(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, l *redlock.Locker, boxes []*box) {
		boxes[1].kill()
		first, second := take(t, l, shared("first")), take(t, l, shared("second"))
		require.Greater(t, second.Fence, first.Fence)
		writer := waiting("writer")
		for range 3 {
			require.Equal(t, driver.HeldForClaim, try(t, l, writer).Reason)
			time.Sleep(time.Second)
			require.Equal(t, driver.Busy, try(t, l, shared("late")).State)
		}
		boxes[1].heal()
		for _, c := range []driver.Claim{first, second} {
			held, err := l.Renew(t.Context(), c)
			require.NoError(t, err)
			require.True(t, held)
			held, err = l.Release(t.Context(), c, driver.After{})
			require.NoError(t, err)
			require.True(t, held)
		}
		time.Sleep(time.Second)
		require.Equal(t, driver.Busy, try(t, l, shared("late")).State)
		time.Sleep(time.Second) // the grants of the refused claim are released
		granted := take(t, l, writer)
		require.Greater(t, granted.Fence, second.Fence)
		require.Equal(t, driver.Busy, try(t, l, shared("late")).State)
		held, err := l.Release(t.Context(), granted, driver.After{})
		require.NoError(t, err)
		require.True(t, held)
		time.Sleep(time.Second)
		take(t, l, shared("late"))
	})
}

func TestSharing_isRefusedIfANodeCannot(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{}) // which is not asked
	t.Cleanup(func() { _ = rdb.Close() })
	_, err := guard.New(redlock.New(append(memories(2), plainNode{reentrant.New(rdb)})), guard.WithShared())
	require.ErrorContains(t, err, "WithShared")
}
