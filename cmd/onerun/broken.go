//go:build unix

package main

import (
	"context"
	"errors"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/inspect"
)

// showTimeout bounds how long run asks for the state of a lost lease. The command runs on until
// the answer comes.
const showTimeout = 250 * time.Millisecond

// kept returns for how long the key of a lost lease stays taken because an operator has broken the
// lease ("onerun break"): until the lease would have ended, under the fence of the lease and
// another ID. It returns 0 in all other cases: another run may have begun.
func (w *work) kept(lost *guard.LostError) time.Duration {
	i, err := inspect.New(w.locks)
	if err != nil {
		return 0
	}
	ctx, cancel := context.WithTimeout(context.Background(), showTimeout)
	defer cancel()
	asked := time.Now()
	key, err := i.Show(ctx, lost.Key)
	if err != nil {
		return 0
	}
	fence := w.leases.fence(lost.Key)
	for _, h := range key.Holders {
		// On a quorum, a minority of the nodes keeps nobody away.
		if h.Kept && h.Fence == fence && fence != 0 && (w.nodes == 1 || h.Nodes > w.nodes/2) {
			return time.Until(endOf(asked, h.Left))
		}
	}
	return 0
}

// grace returns how long the command may go on after its context has ended, because of the cause.
func (w *work) grace(cause error) time.Duration {
	var lost *guard.LostError
	if !errors.As(cause, &lost) {
		return 0
	}
	switch lost.Reason {
	case guard.LossExpired, guard.LossMaxHold:
		return w.run.grace() - lost.Late
	case guard.LossNotHeld:
		return min(w.run.grace(), w.kept(lost))
	default:
		return 0
	}
}
