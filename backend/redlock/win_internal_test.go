package redlock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

// A vote may come after the votes were counted and before the ballot is won. Then its node is one
// of the majority, although it has reserved less than those that were counted.
func TestWin_reservesNoMoreThanANodeHasWhoseVoteWasNotCounted(t *testing.T) {
	var nodes []driver.Locker
	for range 5 {
		nodes = append(nodes, &guardtest.Scripted{})
	}
	l := New(nodes)
	c := driver.Claim{Key: "k", ID: "a", Owner: "a", TTL: time.Minute, Reserve: 10}
	b := &ballot{locker: l, claim: c, order: l.orders.enter(c.ID), start: time.Now()}
	for i, g := range []driver.Answer{{Fence: 70, Reserved: 10}, {Fence: 60, Reserved: 10}, {Fence: 60, Reserved: 10}} {
		g.State = driver.Granted
		b.votes = append(b.votes, vote{node: l.nodes[i], grant: g})
	}
	counted := l.count(b.votes, false)
	require.Equal(t, granted, counted.verdict)
	b.votes = append(b.votes, vote{node: l.nodes[3], grant: driver.Answer{State: driver.Granted, Fence: 70, Reserved: 2}})
	reserved, err := b.win(t.Context(), counted)
	require.NoError(t, err)
	require.Equal(t, 2, reserved)
	for _, n := range nodes[1:3] {
		for _, call := range n.(*guardtest.Scripted).Calls() {
			require.Equal(t, driver.OpRenew, call.Op)
			require.EqualValues(t, 70, call.Claim.Fence)
			require.Equal(t, 2, call.Claim.Reserve)
		}
	}
}
