package etcd

import (
	"encoding/json"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/seed-1795987d/onerun/backend/internal/holders"
)

const (
	// fenceBits is how many bits of a fence are below its revision. A grant can reserve the fences
	// up to the one of the next revision.
	fenceBits  = 6
	maxReserve = 1<<fenceBits - 1
	// fenceSecond is a second on the scale of fences, see holders.Clock.
	fenceSecond = 1 << 20
)

// A clock makes fences of revisions. Revisions only grow, and no two grants have the same one. The
// base lets fences be on the same scale as those of other backends.
//
// A claim that finds the fences more than a second behind its own clock sets the base forward, in
// the transaction that grants it. So fences also grow if the revision goes back, as it does when
// the servers lose all data, or have that of a snapshot. Only for that do clocks of processes
// matter.
type clock struct {
	Base  uint64 `json:"base"`
	Since int64  `json:"since"` // the revision whose fence is Base
}

// at returns the fence of a grant with that revision.
func (c clock) at(revision int64) uint64 {
	return c.Base + uint64(max(revision-c.Since, 0))<<fenceBits //nolint:gosec // not negative
}

// next returns the clock for grants after a revision. Their fences are larger than end.
func (c clock) next(now time.Time, revision int64, end uint64) clock {
	fence := c.at(revision)
	next := fence
	if wall := holders.Clock(now); wall > fence+fenceSecond {
		next = wall
		if c.Since == 0 { // the servers may have lost it, and reserved fences may be ahead
			next += 2 * fenceSecond
		}
	}
	if end >= next {
		next = end + fenceSecond // so that others need not do the same at once
	}
	if next == fence {
		return c
	}
	return clock{next, revision}
}

// A clockKey is the clock as it was read.
type clockKey struct {
	key, value string // the value is "" if there is none
	clock
}

func parseClock(key string, value []byte) (c clockKey, err error) {
	c.key, c.value = key, string(value)
	if len(value) > 0 {
		err = json.Unmarshal(value, &c.clock)
	}
	return c, err
}

// unchanged compares the clock with what was read. It is the value that counts: an empty store
// begins with the same revisions.
func (c clockKey) unchanged() clientv3.Cmp {
	if c.value == "" {
		return clientv3.Compare(clientv3.CreateRevision(c.key), "=", 0)
	}
	return clientv3.Compare(clientv3.Value(c.key), "=", c.value)
}

// set returns the operations that write a clock, unless it is the one that was read.
func (c clockKey) set(next clock) []clientv3.Op {
	if next == c.clock {
		return nil
	}
	value, _ := json.Marshal(next) // cannot fail
	return []clientv3.Op{clientv3.OpPut(c.key, string(value))}
}
