package history_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/backend/redlock"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/verify/history"
)

func quorumOf(node func() guard.Locker) guard.Locker {
	var nodes []guard.Locker
	for range 3 {
		nodes = append(nodes, node())
	}
	return redlock.New(nodes)
}

func TestLinearizableSeats_redlockIs(t *testing.T) {
	outcomes, beside := map[history.Outcome]int{}, 0
	for range 20 {
		calls := sharedBy(t, quorumOf(func() guard.Locker { return memory.New() }), 6, 25)
		v := history.LinearizableSeats(calls, 10*time.Second)
		require.True(t, v.OK(), "%v", v)
		for _, c := range calls {
			outcomes[c.Outcome]++
			if c.Seat > 1 {
				beside++
			}
		}
	}
	require.Positive(t, outcomes[history.Busy])
	require.Positive(t, outcomes[history.OK])
	require.Positive(t, beside)
}

// A counter grants what a quorum asks for as if there were no other nodes.
type counter struct{ *memory.Locker }

func (n counter) TryAcquire(ctx context.Context, c guard.Claim) (guard.Grant, error) {
	c.Seat = 0
	return n.Locker.TryAcquire(ctx, c)
}

func TestLinearizableSeats_aQuorumOfCountersIsNot(t *testing.T) {
	for range 100 {
		calls := sharedBy(t, quorumOf(func() guard.Locker { return counter{memory.New()} }), 6, 25)
		if v := history.LinearizableSeats(calls, 10*time.Second); v.String() == "ILLEGAL on a shared key" {
			return
		}
	}
	require.Fail(t, "it was not found out")
}

func TestLinearizableSeats_histories(t *testing.T) {
	took := func(claim string, among, seat int, at int64, fence uint64) history.SharedCall {
		return history.SharedCall{Kind: history.Acquire, Claim: claim, Among: among, Seat: seat, Call: at, Return: at + 1, Outcome: ok, Fence: fence}
	}
	left := func(claim string, at int64) history.SharedCall {
		return history.SharedCall{Kind: history.Release, Claim: claim, Call: at, Return: at + 1, Outcome: ok}
	}
	for name, c := range map[string]struct {
		calls []history.SharedCall
		legal bool
	}{
		"two seats":                    {[]history.SharedCall{took("a", 2, 1, 0, 1), took("b", 2, 2, 2, 1)}, true},
		"one seat for two":             {[]history.SharedCall{took("a", 2, 1, 0, 1), took("b", 2, 1, 2, 2)}, false},
		"no seat":                      {[]history.SharedCall{took("a", 2, 0, 0, 1)}, false},
		"limits that differ":           {[]history.SharedCall{took("a", 2, 1, 0, 1), took("b", 5, 2, 2, 2)}, true},
		"a seat above another's limit": {[]history.SharedCall{took("a", 2, 1, 0, 1), took("b", 5, 3, 2, 2)}, false},
		"a limit below another's seat": {[]history.SharedCall{took("b", 5, 3, 0, 1), took("a", 2, 1, 2, 2)}, false},
		"a reader beside a seat":       {[]history.SharedCall{took("a", 2, 1, 0, 1), took("b", driver.Any, 0, 2, 2)}, false},
		"readers under one fence":      {[]history.SharedCall{took("a", driver.Any, 0, 0, 1), took("b", driver.Any, 0, 2, 1)}, true},
		"a writer beside a seat":       {[]history.SharedCall{took("a", 2, 1, 0, 1), took("b", 1, 0, 2, 2)}, false},
		"a repeated claim moves":       {[]history.SharedCall{took("a", 2, 1, 0, 1), took("a", 2, 2, 2, 1)}, false},
		"the fence of a seat grows":    {[]history.SharedCall{took("a", 2, 1, 0, 1), left("a", 2), took("b", 2, 1, 4, 2)}, true},
		"the fence of a seat stays":    {[]history.SharedCall{took("a", 2, 1, 0, 1), left("a", 2), took("b", 2, 1, 4, 1)}, false},
		"a writer under an old fence":  {[]history.SharedCall{took("a", 2, 1, 0, 1), left("a", 2), took("b", 1, 0, 4, 1)}, false},
		"a reader under a writer's":    {[]history.SharedCall{took("a", 1, 0, 0, 1), left("a", 2), took("b", driver.Any, 0, 4, 1)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.legal, history.LinearizableSeats(c.calls, time.Second).OK())
		})
	}
}
