package etcd

import (
	"context"
	"sync"
)

// A history notices that the revision has gone back. The servers then have the data of a snapshot,
// or have lost all. A watch that was under way would wait for a revision that is yet to come.
type history struct {
	mu       sync.Mutex
	last     int64           // the largest revision that an answer had
	from, to int64           // between which it has gone back, or 0
	same     context.Context // ends when it goes back
	end      context.CancelFunc
}

// now returns the last revision. Answers to later requests have at least the same.
func (h *history) now() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last
}

// note notes the revision of an answer. before is the last one when the request was sent.
func (h *history) note(before, revision int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if revision >= before || h.last < before {
		h.last = max(h.last, revision)
		return
	}
	h.last, h.from, h.to = revision, h.last, revision
	if h.same != nil {
		h.end()
		h.same = nil
	}
}

// until returns a context that ends when the revision goes back.
func (h *history) until() context.Context {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.same == nil {
		h.same, h.end = context.WithCancel(context.Background())
	}
	return h.same
}

// wentBack returns the last two revisions between which it has gone back, or 0.
func (h *history) wentBack() (from, to int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.from, h.to
}
