package history

import (
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// seated is the state of a key whose holders go together in pairs: the holders, sorted by claim,
// and the last fences.
type seated struct {
	holders []sharer
	last    [driver.MaxSeats + 1]uint64 // by seat; 0 is of claims that were alone
	top     uint64                      // of all
}

// seatModel says which answers are those of a quorum. Each two holders go together, see
// driver.Sharer. A quorum may refuse a claim without such a reason, as claims that come at the same
// time can each get a part of it.
var seatModel = porcupine.Model{
	Init: func() any { return seated{} },
	Step: func(state, in, _ any) (bool, any) { return stepSeated(state.(seated), in.(SharedCall)) },
	Equal: func(a, b any) bool {
		x, y := a.(seated), b.(seated)
		return x.last == y.last && x.top == y.top && slices.Equal(x.holders, y.holders)
	},
	DescribeOperation: sharedModel.DescribeOperation,
}

func stepSeated(s seated, c SharedCall) (legal bool, next any) {
	at, held := slices.BinarySearchFunc(s.holders, c.Claim, func(h sharer, claim string) int {
		return strings.Compare(h.claim, claim)
	})
	mine := sharer{claim: c.Claim, among: c.Among, fence: c.Fence, seat: c.Seat}
	switch {
	case c.Kind == Release && held:
		s.holders = slices.Delete(slices.Clone(s.holders), at, at+1)
		return c.Outcome == OK, s
	case c.Kind == Release:
		return c.Outcome == NotHeld, s
	case held:
		return c.Outcome == OK && mine == s.holders[at], s
	case c.Outcome == Busy:
		return true, s
	}
	if c.Among > 1 && c.Among <= driver.MaxSeats && (c.Seat < 1 || c.Seat > c.Among) || c.Fence <= s.last[0] {
		return false, s
	}
	for _, h := range s.holders {
		if !goTogether(h, mine) {
			return false, s
		}
	}
	switch {
	case c.Among == 1 && c.Fence <= s.top, c.Seat > 0 && c.Fence <= s.last[c.Seat]:
		return false, s
	case c.Among == 1 || c.Seat > 0:
		s.last[c.Seat] = c.Fence
	}
	s.top = max(s.top, c.Fence)
	s.holders = slices.Insert(slices.Clone(s.holders), at, mine)
	return c.Outcome == OK, s
}

// goTogether reports whether two claims may hold a key together on any nodes of a quorum.
func goTogether(a, b sharer) bool {
	if a.seat == 0 || b.seat == 0 {
		return min(a.among, b.among) > driver.MaxSeats
	}
	return a.seat != b.seat && a.seat <= b.among && b.seat <= a.among
}

// LinearizableSeats asks porcupine, which may take as long as limit, whether the calls, all on one
// key, have the answers of a key that claims share on a quorum.
func LinearizableSeats(calls []SharedCall, limit time.Duration) Verdict {
	return checkShared(seatModel, calls, limit)
}
