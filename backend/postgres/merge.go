package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

const (
	// maxBatch is how many claims a statement renews.
	maxBatch = 1000
	// maxRenewals is how many statements that renew a batch are under way at a time.
	maxRenewals = 4
)

// A batchClaim is a claim in the statement of a batch.
type batchClaim struct {
	I       int    `json:"i"`
	Key     []byte `json:"key"`
	ID      string `json:"id"`
	Fence   uint64 `json:"fence"`
	Reserve int    `json:"reserve"`
	TTL     int64  `json:"ttl"`
}

// A batchAnswer is the answer to a claim of a batch. again means that it must be asked by itself.
type batchAnswer struct {
	held, again bool
	err         error
}

// A batch is the claims of a call, with their answers in the same order.
type batch struct {
	ctx      context.Context
	claims   []driver.Claim
	answered chan []batchAnswer
}

// A merger renews the batches of several calls by one statement. When the server is slow, renewals
// fall due one by one; each by itself would need a connection, of which there may be only one.
type merger struct {
	locker *Locker

	mu       sync.Mutex
	waiting  []*batch
	underway int
	newest   time.Time // when the newest statement was sent
	timer    *time.Timer
}

// renew returns the answers to the claims, or the error of ctx when it has ended.
func (m *merger) renew(ctx context.Context, claims []driver.Claim) ([]batchAnswer, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b := &batch{ctx, claims, make(chan []batchAnswer, 1)}
	m.mu.Lock()
	m.waiting = append(m.waiting, b)
	m.send()
	m.mu.Unlock()
	select {
	case answers := <-b.answered:
		return answers, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// send sends the batches that wait, unless a statement is under way that is likely to be answered
// soon. Its connection may be dead, so that does not count for long. m.mu must be held.
func (m *merger) send() {
	m.waiting = slices.DeleteFunc(m.waiting, func(b *batch) bool { return b.ctx.Err() != nil })
	if len(m.waiting) == 0 || m.underway >= maxRenewals {
		return
	}
	patience := m.waiting[0].claims[0].TTL / 8
	if rest := patience - time.Since(m.newest); m.underway > 0 && rest > 0 {
		if m.timer == nil {
			m.timer = time.AfterFunc(rest, m.resend)
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
	m.underway++
	m.newest = time.Now()
	go func() {
		m.run(batches)
		m.mu.Lock()
		defer m.mu.Unlock()
		m.underway--
		m.send()
	}()
}

// resend sends what still waits.
func (m *merger) resend() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.timer = nil
	m.send()
}

// run renews the claims of batches. It ends when all of their contexts have ended.
func (m *merger) run(batches []*batch) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(batches[0].ctx))
	defer cancel()
	var left atomic.Int64
	for _, b := range batches {
		defer context.AfterFunc(b.ctx, func() {
			if left.Add(1) == int64(len(batches)) {
				cancel()
			}
		})()
	}
	claims, of := unite(batches)
	answers, err := m.locker.renewAll(ctx, claims)
	for i, b := range batches {
		all := make([]batchAnswer, len(b.claims))
		for j, c := range b.claims {
			if err == nil {
				all[j] = answers[of[i][j]]
				continue
			}
			own := *err
			own.Key = c.Key
			all[j].err = &own
		}
		b.answered <- all
	}
}

// unite returns the claims of batches, each once, and where the claims of each batch are in it: a
// renewal that has no answer yet may be repeated.
func unite(batches []*batch) (claims []batchClaim, of [][]int) {
	type name struct{ key, id string }
	at := map[name]int{}
	of = make([][]int, len(batches))
	for i, b := range batches {
		for _, c := range b.claims {
			n, known := at[name{c.Key, c.ID}]
			if !known {
				n = len(claims)
				at[name{c.Key, c.ID}] = n
				claims = append(claims, batchClaim{I: n, Key: []byte(c.Key), ID: c.ID})
			}
			if u := &claims[n]; !known || c.Fence >= u.Fence {
				u.Fence, u.Reserve, u.TTL = c.Fence, max(c.Reserve, 0), micros(c.TTL)
			}
			of[i] = append(of[i], n)
		}
	}
	return claims, of
}

// renewAll renews claims by one statement.
func (l *Locker) renewAll(ctx context.Context, claims []batchClaim) ([]batchAnswer, *driver.StoreError) {
	answers, err := ask(ctx, l, driver.OpRenew, string(claims[0].Key), func(ctx context.Context) ([]batchAnswer, error) {
		text, err := json.Marshal(claims)
		if err != nil {
			return nil, err
		}
		all := make([]batchAnswer, len(claims))
		err = l.query(ctx, func(scan func(...any) error) error {
			var i int
			var a batchAnswer
			err := scan(&i, &a.held, &a.again)
			if err == nil {
				all[i] = a
			}
			return err
		}, l.sql().renewBatch, string(text))
		if isRace(err) {
			for i := range all {
				all[i] = batchAnswer{again: true}
			}
			err = nil
		}
		return all, err
	})
	var store *driver.StoreError
	errors.As(err, &store)
	return answers, store
}
