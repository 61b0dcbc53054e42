package history

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// A SharedCall is one operation on a key that several claims may hold. Leases do not expire, and
// no claim waits: a claim that is wanted would be refused to others.
type SharedCall struct {
	Client       int
	Kind         Kind // Acquire or Release
	Claim        string
	MaxHolders   int // how many may hold the key with the claim, itself included
	Fence        uint64
	Outcome      Outcome // OK or Busy of Acquire, OK or NotHeld of Release
	Call, Return int64
}

// sharers is the state of a key: the MaxHolders of each holder by its claim, sorted, and the last
// fence.
type sharers struct {
	holders []sharer
	last    uint64
}

type sharer struct {
	claim string
	among int
	fence uint64
}

// sharedModel says which answers are those of a key that is granted if there are fewer holders
// than the smallest MaxHolders of the claim and of the holders. A repeated claim counts once.
var sharedModel = porcupine.Model{
	Init: func() any { return sharers{} },
	Step: func(state, in, _ any) (bool, any) { return stepShared(state.(sharers), in.(SharedCall)) },
	Equal: func(a, b any) bool {
		x, y := a.(sharers), b.(sharers)
		return x.last == y.last && slices.Equal(x.holders, y.holders)
	},
	DescribeOperation: func(in, _ any) string {
		c := in.(SharedCall)
		return fmt.Sprintf("%s %.6s among %d: %s %d", c.Kind, c.Claim, c.MaxHolders, c.Outcome, c.Fence)
	},
}

func stepShared(s sharers, c SharedCall) (legal bool, next any) {
	at, held := slices.BinarySearchFunc(s.holders, c.Claim, func(h sharer, claim string) int {
		return strings.Compare(h.claim, claim)
	})
	switch {
	case c.Kind == Release && held:
		s.holders = slices.Delete(slices.Clone(s.holders), at, at+1)
		return c.Outcome == OK, s
	case c.Kind == Release:
		return c.Outcome == NotHeld, s
	case held:
		return c.Outcome == OK && c.Fence == s.holders[at].fence, s
	}
	most := c.MaxHolders
	for _, h := range s.holders {
		most = min(most, h.among)
	}
	if len(s.holders) >= most {
		return c.Outcome == Busy, s
	}
	mine := sharer{claim: c.Claim, among: c.MaxHolders, fence: c.Fence}
	next = sharers{slices.Insert(slices.Clone(s.holders), at, mine), c.Fence}
	return c.Outcome == OK && c.Fence > s.last, next
}

// LinearizableShared asks porcupine, which may take as long as limit, whether the calls, all on
// one key, have the answers of a key that is shared.
func LinearizableShared(calls []SharedCall, limit time.Duration) Verdict {
	operations := make([]porcupine.Operation, len(calls))
	for i, c := range calls {
		operations[i] = porcupine.Operation{
			ClientId: c.Client, Input: c, Output: c.Outcome, Call: c.Call, Return: c.Return,
		}
	}
	result := porcupine.CheckOperationsTimeout(sharedModel, operations, limit)
	return Verdict{Result: result, Key: "a shared key", Calls: len(calls)}
}
