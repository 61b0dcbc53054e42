package redlock

import (
	"context"
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
	c := driver.Claim{Key: "k", ID: "a", Owner: "a", TTL: time.Minute, Fences: driver.FenceRequest{Reserve: 10}}
	order := l.orders.enter(c.ID)
	votes := newGathering[driver.Answer](len(nodes))
	b := &ballot{locker: l, claim: c, order: order, start: time.Now(), votes: votes}
	for i, g := range []driver.Answer{{Fence: 70, Reserved: 10}, {Fence: 60, Reserved: 10}, {Fence: 60, Reserved: 10}} {
		g.State = driver.Granted
		votes.add(vote{node: l.nodes[i], value: g})
	}
	counted := l.count(votes.got, false)
	require.Equal(t, granted, counted.verdict)
	votes.add(vote{node: l.nodes[3], value: driver.Answer{State: driver.Granted, Fence: 70, Reserved: 2}})
	reserved, err := b.win(t.Context(), counted)
	require.NoError(t, err)
	require.Equal(t, 2, reserved)
	for _, n := range nodes[1:3] {
		for _, call := range n.(*guardtest.Scripted).Calls() {
			require.Equal(t, driver.OpRenew, call.Op)
			require.EqualValues(t, 70, call.Claim.Fence)
			require.Equal(t, 2, call.Claim.Fences.Reserve)
		}
	}
}

// A node that grants the lease's fence late does not count if it has reserved fewer fences.
func TestWin_aLateGrantCountsOnlyIfItHasReservedAsMuch(t *testing.T) {
	for reserved, wins := range map[int]bool{9: false, 10: true} {
		var late func()
		fails := func(context.Context, int, driver.Claim) (bool, error) {
			late() // the win has counted its votes
			return false, guardtest.Fail(driver.KindOther)
		}
		nodes := []driver.Locker{nil, &guardtest.Scripted{OnRenew: fails}, nil, nil, nil}
		for i := range nodes {
			if nodes[i] == nil {
				nodes[i] = &guardtest.Scripted{}
			}
		}
		l := New(nodes)
		c := driver.Claim{Key: "k", ID: "a", Owner: "a", TTL: time.Minute, Fences: driver.FenceRequest{Reserve: 10}}
		order := l.orders.enter(c.ID)
		b := &ballot{locker: l, claim: c, order: order, start: time.Now(), votes: newGathering[driver.Answer](len(nodes))}
		grant := func(node int, fence uint64, reserved int) {
			b.votes.add(vote{node: l.nodes[node], value: driver.Answer{State: driver.Granted, Fence: fence, Reserved: reserved}})
		}
		grant(0, 70, 10)
		grant(1, 60, 10)
		grant(2, 60, 10)
		counted := l.count(b.votes.got, false)
		late = func() {
			grant(3, 70, reserved)
			b.votes.add(reply[driver.Answer]{node: l.nodes[4], err: errSilent})
		}
		_, err := b.win(t.Context(), counted)
		require.Equal(t, wins, err == nil, "%v", err)
	}
}
