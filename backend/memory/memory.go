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

	"github.com/seed-1795987d/onerun/backend/internal/holders"
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
	now     func() time.Time // time.Now, except in a simulation of clocks that jump
}

var (
	_ driver.Locker    = (*Locker)(nil)
	_ driver.Describer = (*Locker)(nil)
)

// New returns an empty Locker.
func New() *Locker {
	return &Locker{now: time.Now, keys: map[string]*entry{}, queues: queues{byKey: map[string]*queue{}, subscribers: map[string]*subscriber{}}}
}

// An entry is the state of a key, until it ends.
type entry struct {
	key string
	holders.Key
	room  [1]holders.Holder // so that a single holder needs no slice of its own
	ends  time.Time         // when all that is in the key has ended
	index int               // in the heap of expiries, or unplanned
}

// unplanned is the index of an entry that is not in the heap, because nothing is in its key.
const unplanned = -1

// Describe implements driver.Describer. Only the ID distinguishes claims. Any number of them can
// share a key. Claims that are not queued poll.
func (l *Locker) Describe() driver.Description {
	return driver.Description{Name: "memory", Queue: true, Polls: true, Shares: func(int) error { return nil }}
}

// TryAcquire implements driver.Locker.
func (l *Locker) TryAcquire(ctx context.Context, c driver.Claim) (driver.Answer, error) {
	now, err := l.lock(ctx, driver.OpAcquire, c.Key)
	if err != nil {
		return driver.Answer{}, err
	}
	defer l.unlock()
	e := l.entry(c.Key, now)
	if c.Queue.UsesQueue() {
		return l.acquireQueued(e, c, now), nil
	}
	return l.acquire(e, c, now), nil
}

// acquire makes a claim, whatever the queue holds. The caller holds l.mu. A Locker never loses its
// last fence, so its first one is the clock. A program that starts again after 65 ms or more
// therefore has larger fences than before.
func (l *Locker) acquire(e *entry, c driver.Claim, now time.Time) driver.Answer {
	answer, _ := e.Acquire(c, now, &l.counter, l.counter != 0)
	l.plan(e)
	answer.Record = bytes.Clone(answer.Record)
	return answer
}

// Renew implements driver.Locker.
func (l *Locker) Renew(ctx context.Context, c driver.Claim) (bool, error) {
	now, err := l.lock(ctx, driver.OpRenew, c.Key)
	if err != nil {
		return false, err
	}
	defer l.unlock()
	e := l.entry(c.Key, now)
	held, _ := e.Renew(c, now, &l.counter)
	l.plan(e)
	return held, nil
}

// Release implements driver.Locker.
func (l *Locker) Release(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
	now, err := l.lock(ctx, driver.OpRelease, c.Key)
	if err != nil {
		return false, err
	}
	defer l.unlock()
	e := l.entry(c.Key, now)
	after.Record = bytes.Clone(after.Record)
	held, _ := e.Release(c, after, now)
	l.plan(e)
	if c.Queue.UsesQueue() {
		l.leaveQueue(e, c, now)
	}
	return held, nil
}

// entry returns the state of the key. If nothing is in the key, the entry is new, and plan keeps it
// if something is by then.
func (l *Locker) entry(key string, now time.Time) *entry {
	if e := l.keys[key]; e != nil {
		e.Expire(now)
		return e
	}
	e := &entry{key: key, index: unplanned}
	e.Holders = e.room[:0]
	return e
}

// plan has an entry end with what is in its key, or now if nothing is.
func (l *Locker) plan(e *entry) {
	e.ends = e.Ends()
	switch known := e.index != unplanned; {
	case e.IsFree() && known:
		delete(l.keys, e.key)
		heap.Remove(&l.expiry, e.index)
	case e.IsFree():
	case known:
		heap.Fix(&l.expiry, e.index)
	default:
		l.keys[e.key] = e
		heap.Push(&l.expiry, e)
	}
}

// lock locks l.mu and returns the time, or an error if ctx has ended. The caller calls unlock.
func (l *Locker) lock(ctx context.Context, op driver.Op, key string) (time.Time, error) {
	if err := ctx.Err(); err != nil {
		return time.Time{}, driver.NewStoreError("memory", op, key, err)
	}
	l.mu.Lock()
	return l.sweep(), nil
}

// sweep removes what has ended, so that memory is bounded by what is live. It returns the time.
func (l *Locker) sweep() time.Time {
	now := l.now()
	for len(l.expiry) > 0 && !now.Before(l.expiry[0].ends) {
		e := heap.Pop(&l.expiry).(*entry)
		delete(l.keys, e.key)
	}
	return now
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
