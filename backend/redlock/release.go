package redlock

import (
	"bytes"
	"context"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

const (
	// releaseTimeout bounds a release at one node.
	releaseTimeout = 2 * time.Second
	// settle is after how long a release is repeated that had no answer, or whose claim had none:
	// the claim can arrive after the release. mostRepeats is how many are repeated at the same
	// time. The others end with their TTL.
	settle      = 500 * time.Millisecond
	mostRepeats = 1000
)

// Release implements driver.Locker. It goes to all nodes, and returns when a majority has
// confirmed it.
func (l *Locker) Release(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, driver.NewStoreError("redlock", driver.OpRelease, c.Key, err)
	}
	// it is the caller's, and a slow node may read it after the caller has left
	after.Record = bytes.Clone(after.Record)
	turns := l.claims.enter(c.ID)
	defer l.claims.leave(turns)
	l.claims.setReleased(turns, true)
	type answer struct {
		node *node
		held bool
		err  error
	}
	answers := make(chan answer, len(l.nodes))
	call, cancel := detached(ctx, releaseTimeout)
	last := lastOf(len(l.nodes), cancel)
	for _, n := range l.nodes {
		l.claims.inTurn(turns, n, func(end func()) {
			n.release(call, c, after, func(held bool, err error) {
				answers <- answer{n, held, err}
				if err != nil || l.claims.isDoubtful(turns, n) {
					l.releaseAgain(turns, n, c, after)
				}
				last()
				end()
			})
		})
	}

	spare := len(l.nodes) - l.quorum
	held, gone := 0, 0
	errs := silentAll(l.nodes)
	for pending := len(l.nodes); ; {
		switch {
		case held >= l.quorum:
			return true, nil
		case gone > spare:
			return false, nil
		case held+pending < l.quorum && gone+pending <= spare:
			return false, l.noQuorum(driver.OpRelease, c.Key, errs)
		}
		select {
		case a := <-answers:
			pending--
			switch errs[a.node.index] = a.err; {
			case a.err != nil:
			case a.held:
				held++
			default:
				gone++
			}
		case <-ctx.Done():
			return false, l.noQuorum(driver.OpRelease, c.Key, errs)
		}
	}
}

// giveBack releases a claim at one node, in the background. It goes before the calls that wait
// there for their turn, because the claim may have been made again. doubtful means that the claim
// may still arrive there.
func (l *Locker) giveBack(turns *claim, n *node, c driver.Claim, doubtful bool) {
	undone := l.claims.undo(turns, n)
	l.claims.inNextTurn(turns, n, func(end func()) {
		ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
		n.release(ctx, c, driver.After{}, func(_ bool, err error) {
			cancel()
			if err == nil {
				undone()
			} else {
				// turns, which is there as this call is under way
				l.claims.enter(c.ID)
				// it may arrive yet
				time.AfterFunc(settle, func() { undone(); l.claims.leave(turns) })
			}
			if err != nil || doubtful {
				l.releaseAgain(turns, n, c, driver.After{})
			}
			end()
		})
	})
}

// releaseAgain repeats a release at one node after some time, in the background, unless the claim
// is made again.
func (l *Locker) releaseAgain(turns *claim, n *node, c driver.Claim, after driver.After) {
	if l.repeating.Add(1) > mostRepeats {
		l.repeating.Add(-1)
		return
	}
	l.claims.enter(c.ID) // turns, which is there as a call of its is under way
	time.AfterFunc(min(settle, c.TTL), func() {
		defer l.claims.leave(turns)
		defer l.repeating.Add(-1)
		l.claims.inTurn(turns, n, func(end func()) {
			if !l.claims.isReleased(turns) {
				end()
				return
			}
			ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
			n.release(ctx, c, after, func(bool, error) {
				cancel()
				end()
			})
		})
	})
}
