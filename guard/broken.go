package guard

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

const (
	// brokenName is the name of the log of broken leases in the Ledger. An entry is the ID of the
	// claim that lost its key, a space, and the label of the break.
	brokenName = "onerun:broken"
	// maxBroken is how many broken leases the store remembers.
	maxBroken = 100
	// brokenTimeout bounds how long the error of a lost lease waits for the reason.
	brokenTimeout = time.Second
)

// RecordBreak records that an operator is about to take the key from the claim of that ID
// (driver.Inspector). The holder finds the label, such as "broken by alice: it hangs", in
// LostError.Broken. It returns the errors of Ledger, and nil if the backend has none.
func (a Adapter) RecordBreak(ctx context.Context, id, label string) error {
	l, ok := a.Ledger()
	if !ok {
		return nil
	}
	return l.Append(ctx, brokenName, driver.Entry{At: time.Now().UnixMilli(), Record: []byte(id + " " + label)}, maxBroken)
}

// brokenLeases reads the log of broken leases. Leases that are lost at the same time share a read.
type brokenLeases struct {
	mu   sync.Mutex
	last *brokenRead
}

// A brokenRead is one reading of the log.
type brokenRead struct {
	sent   time.Duration
	done   chan struct{}
	labels map[string]string // by the ID of the claim
}

// find returns the label of the break by which the claim lost its key before an instant, or "" if
// there is none, or ctx ends before the store has answered.
func (b *brokenLeases) find(ctx context.Context, g *Guard, id string, lost time.Duration) string {
	l, ok := g.Adapter().Ledger()
	if !ok {
		return ""
	}
	b.mu.Lock()
	r := b.last
	if r == nil || r.sent < lost {
		r = &brokenRead{sent: g.clock.Now(), done: make(chan struct{})}
		b.last = r
		g.background.start(func() { r.read(g.detached(), l) })
	}
	b.mu.Unlock()
	select {
	case <-r.done:
		return r.labels[id]
	case <-ctx.Done():
		return ""
	}
}

func (r *brokenRead) read(ctx context.Context, l driver.Ledger) {
	defer close(r.done)
	defer func() { _ = recover() }() // the backend may panic: the reason stays unknown
	ctx, cancel := context.WithTimeout(ctx, brokenTimeout)
	defer cancel()
	entries, err := driver.Entries(ctx, l, brokenName, maxBroken)
	if err != nil {
		return
	}
	labels := make(map[string]string, len(entries))
	for _, e := range entries {
		id, label, _ := strings.Cut(string(e.Record), " ")
		labels[id] = label
	}
	r.labels = labels
}
