package history_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/verify/history"
)

const ttl = 100 * time.Millisecond

// op is one call to the store on the key "k", from an instant to another in ms.
func op(kind history.Kind, claim string, from, to int, outcome history.Outcome, fence uint64) history.Event {
	const ms = int64(time.Millisecond)
	return history.Event{Kind: kind, Key: "k", Claim: claim, Call: 1 + int64(from)*ms, Return: 1 + int64(to)*ms, Outcome: outcome, Fence: fence, TTL: ttl}
}

func acquire(claim string, from, to int, outcome history.Outcome, fence uint64) history.Event {
	return op(history.Acquire, claim, from, to, outcome, fence)
}

func renew(from, to int, outcome history.Outcome) history.Event {
	return op(history.Renew, "a", from, to, outcome, 1)
}

func release(claim string, from, to int, outcome history.Outcome) history.Event {
	return op(history.Release, claim, from, to, outcome, 0)
}

// belief is one under a lease that was asked for at an instant and given at another.
func belief(claim string, since, from int, fence uint64) history.Event {
	e := op(history.Belief, claim, from, from+1, "", fence)
	e.Since = op("", "", since, 0, "", 0).Call
	return e
}

// reserving is an acquire that has set three fences aside.
func reserving(e history.Event) history.Event {
	e.Reserve = 3
	return e
}

// unfinished is a call whose caller has not lived to see its end.
func unfinished(e history.Event) history.Event {
	e.Return = 0
	return e
}

const (
	ok      = history.OK
	busy    = history.Busy
	gone    = history.NotHeld
	unknown = history.Unknown
	neither = history.Neither
)

var legal = map[string][]history.Event{
	"one after the other": {
		acquire("a", 0, 1, ok, 1), release("a", 10, 11, ok), acquire("b", 12, 13, ok, 2), release("b", 14, 15, ok),
	},
	"refused while held": {
		acquire("a", 0, 1, ok, 1), acquire("b", 2, 3, busy, 0), release("a", 10, 11, ok),
	},
	"taken while the release is under way": {
		acquire("a", 0, 1, ok, 1), release("a", 10, 30, ok), acquire("b", 12, 13, ok, 2),
	},
	"expired, and taken by another": {
		acquire("a", 0, 1, ok, 1), acquire("b", 99, 102, ok, 2), release("a", 110, 111, gone), release("b", 112, 113, ok),
	},
	"renewed past its first end": {
		acquire("a", 0, 1, ok, 1), renew(50, 51, ok), acquire("b", 120, 121, busy, 0), acquire("b2", 152, 156, ok, 2),
	},
	"renewal of an expired lease is refused": {
		acquire("a", 0, 1, ok, 1), renew(120, 121, gone), acquire("b", 122, 123, ok, 2),
	},
	"handed off under the fences that were reserved": {
		reserving(acquire("a", 0, 1, ok, 5)), belief("a", 0, 1, 5), belief("a", 2, 4, 6), belief("a", 3, 6, 8), release("a", 7, 8, ok),
		acquire("b", 9, 10, ok, 9), belief("b", 9, 10, 9),
	},
	"an unknown acquire that was done, and is undone": {
		acquire("a", 0, 5, unknown, 0), acquire("b", 6, 7, busy, 0), release("a", 8, 9, ok), acquire("b2", 10, 11, ok, 2),
	},
	"an unknown acquire that was not done": {
		acquire("a", 0, 5, unknown, 0), acquire("b", 6, 7, ok, 1), release("b", 8, 9, ok),
	},
	"an unknown acquire that is done late": {
		acquire("a", 0, 5, unknown, 0), release("a", 6, 7, gone), acquire("b", 300, 301, ok, 1), release("b", 302, 303, ok), acquire("c", 304, 305, busy, 0),
	},
	"an own claim that is asked for again": {
		acquire("a", 0, 5, unknown, 0), acquire("a", 6, 7, ok, 3), acquire("a", 8, 9, ok, 3), acquire("b", 100, 101, busy, 0), release("a", 102, 103, ok),
	},
	"an unknown release": {
		acquire("a", 0, 1, ok, 1), release("a", 2, 5, unknown), acquire("b", 6, 7, busy, 0), acquire("c", 8, 9, ok, 2),
	},
	"one whose process was killed while it asked": {
		unfinished(acquire("a", 0, 0, "", 0)), acquire("b", 6, 7, busy, 0), acquire("c", 106, 107, ok, 4),
	},
	"refused without a word on who holds it": {
		acquire("a", 0, 1, neither, 0), acquire("b", 2, 3, ok, 1), acquire("c", 4, 5, neither, 0), release("b", 6, 7, ok),
	},
}

var illegal = map[string][]history.Event{
	"two holders": {
		acquire("a", 0, 1, ok, 1), acquire("b", 2, 3, ok, 2),
	},
	"two holders after a renewal": {
		acquire("a", 0, 1, ok, 1), renew(50, 51, ok), acquire("b", 120, 121, ok, 2),
	},
	"renewed after it has expired": {
		acquire("a", 0, 1, ok, 1), renew(120, 121, ok),
	},
	"renewed after another had it": {
		acquire("a", 0, 1, ok, 1), acquire("b", 110, 111, ok, 2), renew(120, 121, ok),
	},
	"renewed after its release": {
		acquire("a", 0, 1, ok, 1), release("a", 2, 3, ok), renew(4, 5, ok),
	},
	"released by another": {
		acquire("a", 0, 1, ok, 1), release("b", 2, 3, ok),
	},
	"lost while it lasts": {
		acquire("a", 0, 1, ok, 1), renew(20, 21, gone),
	},
	"gone when it is released": {
		acquire("a", 0, 1, ok, 1), release("a", 20, 21, gone),
	},
	"a stuck key": {
		acquire("a", 0, 1, ok, 1), acquire("b", 120, 121, busy, 0),
	},
	"stuck after a release": {
		acquire("a", 0, 1, ok, 1), release("a", 2, 3, ok), acquire("b", 4, 5, busy, 0),
	},
	"a fence that repeats": {
		acquire("a", 0, 1, ok, 1), release("a", 2, 3, ok), acquire("b", 4, 5, ok, 1),
	},
	"a fence that was reserved for others": {
		reserving(acquire("a", 0, 1, ok, 5)), release("a", 2, 3, ok), acquire("b", 4, 5, ok, 8),
	},
	"handed off under a fence that was not reserved": {
		reserving(acquire("a", 0, 1, ok, 5)), belief("a", 0, 1, 5), belief("a", 2, 4, 9),
	},
	"handed off under one fence twice": {
		reserving(acquire("a", 0, 1, ok, 5)), belief("a", 0, 1, 5), belief("a", 2, 4, 6), belief("a", 3, 6, 6),
	},
	"handed off after its release": {
		reserving(acquire("a", 0, 1, ok, 5)), release("a", 2, 3, ok), belief("a", 4, 5, 6),
	},
	"an own claim that is granted another fence": {
		acquire("a", 0, 1, ok, 1), acquire("a", 2, 3, ok, 2),
	},
	"an own claim that is refused": {
		acquire("a", 0, 1, ok, 1), acquire("a", 2, 3, busy, 0),
	},
	"an unknown acquire that outlasts its release": {
		acquire("a", 0, 5, unknown, 0), release("a", 6, 7, ok), acquire("b", 8, 9, busy, 0),
	},
}

func TestLinearizable_legalHistories(t *testing.T) {
	for name, events := range legal {
		t.Run(name, func(t *testing.T) {
			v := history.Linearizable(events, 10*time.Second)
			require.True(t, v.OK(), "%v", v)
			require.NotZero(t, v.Calls)
		})
	}
}

func TestLinearizable_illegalHistories(t *testing.T) {
	for name, events := range illegal {
		t.Run(name, func(t *testing.T) {
			v := history.Linearizable(events, 10*time.Second)
			require.Equal(t, "ILLEGAL on k", v.String())
		})
	}
}
