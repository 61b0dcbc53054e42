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

// A keptKey is a key that stays taken after its lease was lost.
type keptKey struct {
	label string        // says who has broken the lease, and why
	left  time.Duration // until the key is free
}

// kept returns what is left of a lost lease if an operator has broken it ("onerun break"). The key
// then stays taken until the lease would have ended, under the fence of the lease and another ID.
// In all other cases, another run may have begun.
func (w *work) kept(lost *guard.LostError) (k keptKey, ok bool) {
	i, err := inspect.New(w.locks)
	if err != nil {
		return k, false
	}
	ctx, cancel := context.WithTimeout(context.Background(), showTimeout)
	defer cancel()
	asked := time.Now()
	key, err := i.Show(ctx, lost.Key)
	if err != nil {
		return k, false
	}
	fence := w.leases.fence(lost.Key)
	for _, h := range key.Holders {
		// On a quorum, a minority of the nodes keeps nobody away.
		if h.Kept && h.Fence == fence && fence != 0 && (w.nodes == 1 || h.Nodes > w.nodes/2) {
			return keptKey{h.Label, time.Until(endOf(asked, h.Left))}, true
		}
	}
	return k, false
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
		k, ok := w.kept(lost)
		if !ok {
			return 0
		}
		w.broken = k.label
		return min(w.run.grace(), k.left)
	default:
		return 0
	}
}
