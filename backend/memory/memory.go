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
	_ driver.Locker       = (*Locker)(nil)
	_ driver.BatchRenewer = (*Locker)(nil)
	_ driver.Describer    = (*Locker)(nil)
)

// New returns an empty Locker.
func New() *Locker {
	return &Locker{now: time.Now, keys: map[string]*entry{}, queues: queues{lines: map[string]*line{}, listeners: map[string]*listener{}}}
}

// An entry is the state of a key, until it ends.
type entry struct {
	key string
	// A key that is done has one holder: the claim that has left the marker.
	holders.Key
	room   [1]holders.Holder // for the only one
	done   bool
	record []byte    // kept with a done marker
	ends   time.Time // when all of these have ended
	index  int       // in the heap of expiries
}

// Describe implements driver.Describer. Only the ID distinguishes claims. Any number of them can
// share a key. Claims that are not queued poll.
func (l *Locker) Describe() driver.Description {
	return driver.Description{Name: "memory", Queue: true, Polls: true, Shares: func(int) error { return nil }}
}

// TryAcquire implements driver.Locker.
func (l *Locker) TryAcquire(ctx context.Context, c driver.Claim) (driver.Answer, error) {
	if err := ctx.Err(); err != nil {
		return driver.Answer{}, driver.NewStoreError("memory", driver.OpAcquire, c.Key, err)
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
func (l *Locker) acquire(c driver.Claim, now time.Time) driver.Answer {
	e := l.entry(c.Key, now)
	if e == nil {
		e = &entry{key: c.Key, ends: now.Add(c.TTL)}
		e.Holders = e.room[:0]
		l.keys[c.Key] = e
		heap.Push(&l.expiry, e)
	}
	h := e.Find(c.ID)
	switch {
	case e.done:
		return driver.Answer{State: driver.Done, Left: e.ends.Sub(now), Record: bytes.Clone(e.record), Label: e.Holders[0].Label}
	case h != nil && !h.Released:
		l.extend(e, h, now.Add(c.TTL))
		return driver.Answer{State: driver.Granted, Fence: h.Fence, Seat: h.Seat, Held: true}
	case h != nil || !e.Admits(c):
		grant := e.Refuse(c, now)
		l.plan(e)
		return grant
	}
	grant := l.nextFence(c)
	e.Add(c, &grant, now.Add(c.TTL))
	l.plan(e)
	return grant
}

// Renew implements driver.Locker.
func (l *Locker) Renew(ctx context.Context, c driver.Claim) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, driver.NewStoreError("memory", driver.OpRenew, c.Key, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.sweep()
	e := l.entry(c.Key, now)
	h := e.find(c.ID)
	if h == nil || h.Released || e.done {
		return false, nil
	}
	l.extend(e, h, now.Add(c.TTL))
	h.Use(c.Fence, c.Reserve)
	l.counter = max(l.counter, h.Last)
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
	e := l.entry(c.Key, now)
	h := e.find(c.ID)
	switch {
	case h == nil:
		l.remove(e, c.ID)
		return false
	case h.Released: // and this release is repeated
		return true
	case after.Keep <= 0:
		l.remove(e, c.ID)
		return true
	}
	h.Released = true
	if after.Done && h.MaxHolders == 1 {
		e.done, e.record, h.Label = true, bytes.Clone(after.Record), c.Label
		e.Wanted = holders.Wanted{} // a claim that waits learns that the key is done
	}
	l.extend(e, h, now.Add(after.Keep))
	return true
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

// nextFence returns the grant of a free key, with its fence and the fences that it reserves. A
// Locker never loses its counter, so its first fence is the clock. A program that starts again
// after 65 ms or more therefore has larger fences than before.
func (l *Locker) nextFence(c driver.Claim) (grant driver.Answer) {
	grant, l.counter = holders.Fence(c, l.counter, l.counter != 0, holders.Clock(l.now()))
	return grant
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
