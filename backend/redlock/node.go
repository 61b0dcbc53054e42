package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/seed-1795987d/onerun/guard"
)

const (
	// A node that has not answered any of at least stuckCalls calls for stuckFor is not asked until it has answered one or
	// they have timed out: calls to a frozen server would pile up.
	stuckCalls = 16
	stuckFor   = 250 * time.Millisecond
)

var errStuck = errors.New("it has not answered for some time")

// A node is one of the stores of a quorum.
type node struct {
	guard.Locker
	index    int
	name     string // for errors
	checkKey func(string) error
	server   guard.Server       // nil if it cannot be told from others
	batch    guard.BatchRenewer // nil if it has no such ability

	epoch    time.Time
	asked    atomic.Int64 // calls under way
	answered atomic.Int64 // when a call ended, or began that was the only one, since the epoch
}

func newNode(i int, l guard.Locker) *node {
	n := &node{Locker: l, index: i, name: fmt.Sprintf("node %d", i+1), checkKey: guard.CheckKey, epoch: time.Now()}
	if c, ok := ability[guard.KeyChecker](l); ok {
		n.checkKey = c.CheckKey
	}
	n.server, _ = ability[guard.Server](l)
	n.batch, _ = ability[guard.BatchRenewer](l)
	return n
}

// ask calls f, unless the node is stuck.
func (n *node) ask(op guard.Op, key string, f func() error) error {
	now := int64(time.Since(n.epoch))
	asked := n.asked.Add(1)
	defer n.asked.Add(-1)
	switch {
	case asked == 1:
		n.answered.Store(now)
	case asked > stuckCalls && now-n.answered.Load() > int64(stuckFor):
		return guard.NewStoreError(n.name, op, key, errStuck)
	}
	err := f()
	if err == nil {
		n.answered.Store(int64(time.Since(n.epoch)))
	}
	return err
}

func (n *node) tryAcquire(ctx context.Context, c guard.Claim) (grant guard.Grant, err error) {
	err = n.ask(guard.OpAcquire, c.Key, func() error {
		grant, err = n.TryAcquire(ctx, c)
		return err
	})
	return grant, err
}

func (n *node) renew(ctx context.Context, c guard.Claim) (held bool, err error) {
	err = n.ask(guard.OpRenew, c.Key, func() error {
		held, err = n.Renew(ctx, c)
		return err
	})
	return held, err
}

func (n *node) release(ctx context.Context, c guard.Claim, after guard.After) (held bool, err error) {
	err = n.ask(guard.OpRelease, c.Key, func() error {
		held, err = n.Release(ctx, c, after)
		return err
	})
	return held, err
}
