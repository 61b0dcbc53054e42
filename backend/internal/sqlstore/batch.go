package sqlstore

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-1795987d/onerun/backend/internal/holders"
	"github.com/seed-1795987d/onerun/guard/driver"
)

const (
	// maxBatch is how many claims a statement renews, unless a single call has more.
	maxBatch = 1000
	// maxBatches is how many such statements run at a time.
	maxBatches = 4
	// maxSingle is how many claims of a batch are renewed by themselves at a time.
	maxSingle = 4
)

// Renew implements driver.Locker.
func (l *Locker) Renew(ctx context.Context, c driver.Claim) (held bool, err error) {
	l.renewBatch(ctx, []driver.Claim{c}, func(_ int, a driver.Answer, e error) { held, err = a.Held, e })
	return held, err
}

// Start implements driver.Async. Renewals are one statement.
func (l *Locker) Start(
	ctx context.Context, op driver.Op, claims []driver.Claim, after driver.After, done func(i int, a driver.Answer, err error),
) {
	if op == driver.OpRenew {
		go l.renewBatch(ctx, claims, done)
		return
	}
	driver.Each{Locker: l}.Start(ctx, op, claims, after, done)
}

// renewBatch renews the claims by one statement. Claims that share their key, and those of a row
// that is locked, are renewed one by one. It returns when all have an answer, soon after ctx has
// ended at the latest.
func (l *Locker) renewBatch(ctx context.Context, claims []driver.Claim, done func(i int, a driver.Answer, err error)) {
	slots := make(chan struct{}, maxSingle)
	var single sync.WaitGroup
	for i, a := range l.merger.renew(ctx, claims) {
		if !a.Again {
			done(i, driver.Answer{Held: a.Held}, a.err)
			continue
		}
		single.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			held, err := Ask(ctx, l, driver.OpRenew, claims[i].Key, func(ctx context.Context) (bool, error) {
				return change(ctx, l, claims[i].Key, func(r *Row) (bool, holders.Effect) {
					return r.Renew(claims[i], r.Now, &r.Last)
				})
			})
			done(i, driver.Answer{Held: held}, err)
		})
	}
	single.Wait()
}

// A batchAnswer is the answer to a claim of a batch.
type batchAnswer struct {
	Renewal
	err error
}

// A batch is the claims of a call. The answers are in the same order.
type batch struct {
	ctx      context.Context
	claims   []driver.Claim
	answered chan []batchAnswer
}

// fail returns the answers if none of the claims could be renewed.
func (b *batch) fail(l *Locker, err error) []batchAnswer {
	all := make([]batchAnswer, len(b.claims))
	for i, c := range b.claims {
		all[i].err = l.storeError(driver.OpRenew, c.Key, err)
	}
	return all
}

// A merger renews the batches of several calls by one statement. When the server is slow, renewals
// fall due one by one. If each had a statement, each would need a connection, of which there may be
// only one.
type merger struct {
	locker *Locker

	mu      sync.Mutex
	waiting []*batch
	running int       // how many statements run
	newest  time.Time // when the newest statement was sent
	timer   *time.Timer
}

// renew returns the answers to the claims, at the latest when ctx has ended.
func (m *merger) renew(ctx context.Context, claims []driver.Claim) []batchAnswer {
	if len(claims) == 0 {
		return nil
	}
	b := &batch{ctx, claims, make(chan []batchAnswer, 1)}
	m.mu.Lock()
	m.waiting = append(m.waiting, b)
	m.send()
	m.mu.Unlock()
	select {
	case answers := <-b.answered:
		return answers
	case <-ctx.Done():
		return b.fail(m.locker, ctx.Err())
	}
}

// send sends the batches that wait, unless a statement runs that is likely to end soon. Its
// connection may be dead, so that does not count for long. m.mu must be held.
func (m *merger) send() {
	m.waiting = slices.DeleteFunc(m.waiting, func(b *batch) bool { return b.ctx.Err() != nil })
	if len(m.waiting) == 0 || m.running >= maxBatches {
		return
	}
	patience := m.waiting[0].claims[0].TTL / 8
	if rest := patience - time.Since(m.newest); m.running > 0 && rest > 0 {
		if m.timer == nil {
			m.timer = time.AfterFunc(rest, func() {
				m.mu.Lock()
				defer m.mu.Unlock()
				m.timer = nil
				m.send()
			})
		}
		return
	}
	n, claims := 0, 0
	for n < len(m.waiting) && (n == 0 || claims+len(m.waiting[n].claims) <= maxBatch) {
		claims += len(m.waiting[n].claims)
		n++
	}
	batches := slices.Clone(m.waiting[:n])
	m.waiting = slices.Delete(m.waiting, 0, n)
	m.running++
	m.newest = time.Now()
	go func() {
		m.run(batches)
		m.mu.Lock()
		defer m.mu.Unlock()
		m.running--
		m.send()
	}()
}

// run renews the claims of batches. It ends when all of their contexts have ended.
func (m *merger) run(batches []*batch) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(batches[0].ctx))
	defer cancel()
	var ended atomic.Int64
	for _, b := range batches {
		defer context.AfterFunc(b.ctx, func() {
			if ended.Add(1) == int64(len(batches)) {
				cancel()
			}
		})()
	}
	answers, err := m.locker.renewAll(ctx, batches)
	for _, b := range batches {
		if err != nil {
			b.answered <- b.fail(m.locker, err)
			continue
		}
		mine := make([]batchAnswer, len(b.claims))
		for i := range mine {
			mine[i].Renewal = answers[i]
		}
		b.answered <- mine
		answers = answers[len(mine):]
	}
}

// renewAll renews the claims of batches at once. A claim can be in several batches, because a
// renewal that has no answer yet may be repeated.
func (l *Locker) renewAll(ctx context.Context, batches []*batch) ([]Renewal, error) {
	var claims []driver.Claim
	for _, b := range batches {
		claims = append(claims, b.claims...)
	}
	return Ask(ctx, l, driver.OpRenew, claims[0].Key, func(ctx context.Context) ([]Renewal, error) {
		return l.dialect.Renew(ctx, claims)
	})
}
