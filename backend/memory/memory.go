// Package memory is a driver.Locker for one process: for tests, examples, and programs that run as
// a single instance. It needs no server, and starts no goroutine.
//
//	g, err := guard.New(memory.New())
//
// Its leases and markers are gone with the process. Its fences go on growing after a restart,
// because they start from the wall clock. It excludes no other process.
package memory

import (
	"bytes"
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// A Locker keeps leases in memory. Lockers share nothing: one Locker is one store. It is safe for
// concurrent use.
type Locker struct {
	mu      sync.Mutex
	keys    map[string]*entry
	expiry  expiries
	counter uint64
	ledger  ledger
	queues  queues
}

var (
	_ driver.Locker       = (*Locker)(nil)
	_ driver.BatchRenewer = (*Locker)(nil)
	_ driver.Ownerless    = (*Locker)(nil)
)

// New returns an empty Locker.
func New() *Locker {
	return &Locker{keys: map[string]*entry{}, queues: queues{lines: map[string]*line{}, listeners: map[string]*listener{}}}
}

// An entry is the state of a key, until it ends.
type entry struct {
	key   string
	id    string
	state state
	fence uint64
	label string
	// record is kept with a done marker.
	record []byte
	ends   time.Time
	index  int // in the heap of expiries
}

type state uint8

const (
	held state = iota
	kept       // released, but its minimum hold has not passed
	done
)

// Ownerless implements driver.Ownerless. It returns true: only the ID distinguishes claims.
func (l *Locker) Ownerless() bool { return true }

// TryAcquire implements driver.Locker.
func (l *Locker) TryAcquire(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	if err := ctx.Err(); err != nil {
		return driver.Grant{}, driver.NewStoreError("memory", driver.OpAcquire, c.Key, err)
	}
	l.mu.Lock()
	defer l.unlock()
	now := l.sweep()
	if c.Queue != driver.Unqueued {
		return l.acquireInLine(c, now), nil
	}
	return l.acquire(c, now), nil
}

// acquire is TryAcquire of a claim that ignores the queue. The caller holds l.mu.
func (l *Locker) acquire(c driver.Claim, now time.Time) driver.Grant {
	e := l.keys[c.Key]
	switch {
	case e == nil:
		grant := l.nextFence(c)
		e = &entry{key: c.Key, id: c.ID, fence: grant.Fence, label: c.Label, ends: now.Add(c.TTL)}
		l.keys[c.Key] = e
		heap.Push(&l.expiry, e)
		return grant
	case e.state == done:
		return driver.Grant{State: driver.Done, Left: e.ends.Sub(now), Record: bytes.Clone(e.record), Label: e.label}
	case e.state == kept || e.id != c.ID:
		return driver.Grant{State: driver.Busy, Left: e.ends.Sub(now), Label: e.label, Holder: e.id}
	default:
		l.extend(e, now.Add(c.TTL))
	}
	return driver.Grant{State: driver.Granted, Fence: e.fence, Held: true}
}

// Renew implements driver.Locker.
func (l *Locker) Renew(ctx context.Context, c driver.Claim) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, driver.NewStoreError("memory", driver.OpRenew, c.Key, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.sweep()
	e := l.keys[c.Key]
	if e == nil || e.id != c.ID || e.state != held {
		return false, nil
	}
	l.extend(e, now.Add(c.TTL))
	if c.Fence > e.fence {
		e.fence = c.Fence
		l.counter = max(l.counter, c.Fence+uint64(max(c.Reserve, 0)))
	}
	return true, nil
}

// RenewBatch implements driver.BatchRenewer.
func (l *Locker) RenewBatch(ctx context.Context, claims []driver.Claim, report func(i int, held bool, err error)) {
	for i, c := range claims {
		held, err := l.Renew(ctx, c)
		report(i, held, err)
	}
}

// Release implements driver.Locker.
func (l *Locker) Release(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, driver.NewStoreError("memory", driver.OpRelease, c.Key, err)
	}
	l.mu.Lock()
	defer l.unlock()
	now := l.sweep()
	held := l.release(c, after, now)
	if c.Queue != driver.Unqueued {
		l.leaveLine(c, now)
	}
	return held, nil
}

// release is Release of a claim that ignores the queue. The caller holds l.mu.
func (l *Locker) release(c driver.Claim, after driver.After, now time.Time) bool {
	e := l.keys[c.Key]
	switch {
	case e == nil || e.id != c.ID:
		return false
	case e.state != held: // a release that is repeated
	case after.Keep <= 0:
		delete(l.keys, c.Key)
		heap.Remove(&l.expiry, e.index)
	default:
		e.state = kept
		if after.Done {
			e.state, e.record, e.label = done, bytes.Clone(after.Record), c.Label
		}
		l.extend(e, now.Add(after.Keep))
	}
	return true
}

// sweep removes entries that have ended, so that memory is bounded by live entries. It returns the
// time.
func (l *Locker) sweep() time.Time {
	now := time.Now()
	for len(l.expiry) > 0 && !now.Before(l.expiry[0].ends) {
		e := heap.Pop(&l.expiry).(*entry)
		delete(l.keys, e.key)
	}
	return now
}

func (l *Locker) extend(e *entry, ends time.Time) {
	e.ends = ends
	heap.Fix(&l.expiry, e.index)
}

// ahead is 2^17 fences, as in the backends on Redis: see AHEAD in backend/internal/redisstore. No
// reserved fence is more than half of that ahead of the clock, and no granted hint is further
// behind it. A Locker never loses its counter, so its first fence is the clock. A program that
// starts again after 65 ms or more therefore has larger fences than before.
const ahead = 1 << 17

// nextFence returns the grant of a free key, with its fence and the fences that it reserves. As in
// the backends on Redis, a fence is the wall clock's seconds, shifted left by 20 bits, plus its
// microseconds. If the last fence is not smaller, the next fence is one more than that.
func (l *Locker) nextFence(c driver.Claim) driver.Grant {
	now := time.Now()
	clock := uint64(now.Unix())<<20 + uint64(now.Nanosecond()/1000)
	grant := driver.Grant{State: driver.Granted, Fence: max(l.counter+1, clock), Reserved: max(c.Reserve, 0)}
	if c.Hint != 0 {
		grant.Clock = clock
	}
	if l.counter != 0 && c.Hint > l.counter && c.Hint <= clock && clock-c.Hint <= ahead/2 {
		grant.Fence = c.Hint
	}
	if c.Fence == 0 {
		grant.Reserved = min(grant.Reserved, reservable(grant.Fence, clock))
	} else {
		grant.Fence = c.Fence // and what it reserves is in use already
	}
	l.counter = max(l.counter, grant.Fence+uint64(grant.Reserved))
	return grant
}

// reservable returns how many fences may be reserved above a fence. It is a sixteenth of the room
// below half of ahead, because all keys share the counter.
func reservable(fence, clock uint64) int {
	if limit := clock + ahead/2; fence < limit {
		return int((limit - fence) / 16)
	}
	return 0
}

// expiries is a heap of entries by their end. It implements heap.Interface.
type expiries []*entry

func (q expiries) Len() int           { return len(q) }
func (q expiries) Less(i, j int) bool { return q[i].ends.Before(q[j].ends) }

func (q expiries) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

func (q *expiries) Push(x any) {
	e := x.(*entry)
	e.index = len(*q)
	*q = append(*q, e)
}

func (q *expiries) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return e
}
