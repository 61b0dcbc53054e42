package guard

import (
	"sync/atomic"
	"time"
)

// bound says on which side of the truth asleep may err.
type bound bool

const (
	atLeast bound = false
	atMost  bound = true
)

// anchorAge is for how long what asleep has said will do as an anchor.
const anchorAge = 10 * time.Millisecond

// naps is what asleep has last said to any call of a Guard. To ask it is a system call, which is dear beside the rest of
// a claim.
type naps struct {
	slept atomic.Int64 // the most of what it has said to be so at least
	at    atomic.Int64 // the instant after which it said so
}

// slept asks for how long the host has been suspended since it booted, and notes that. now is the instant.
func (g *Guard) slept(now time.Duration) time.Duration {
	slept := g.asleep(atLeast)
	for {
		most := g.naps.slept.Load()
		if int64(slept) <= most || g.naps.slept.CompareAndSwap(most, int64(slept)) {
			break
		}
	}
	g.naps.at.Store(int64(now))
	return slept
}

// anchor returns for how long the host had been suspended at the instant now, for a claim that is about to be sent. It may be what was said
// a little earlier. That is sound: time spent asleep only grows, so an earlier figure is no larger than that of now, and who
// compares it with one of later, for which slept asks anew, sees every suspension since now. They may see one too many, from just
// before: then a claim is given up and made once more.
func (g *Guard) anchor(now time.Duration) time.Duration {
	if at := g.naps.at.Load(); at != 0 && now-time.Duration(at) < anchorAge {
		return time.Duration(g.naps.slept.Load())
	}
	return g.asleep(atMost)
}
