package redisstore

import (
	"maps"
	"sync"
	"time"
)

// recent is a set of IDs or keys, each for some time. The zero value has none. It is safe for
// concurrent use.
type recent struct {
	mu    sync.Mutex
	until map[string]time.Time
	prune int // with how many elements to look for old ones
}

// underWay, as the time of a claim, is longer than any request takes.
const underWay = time.Hour

// add adds an element for some time, or changes its time.
func (r *recent) add(id string, lasts time.Duration) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.until == nil {
		r.until = map[string]time.Time{}
	}
	r.until[id] = now.Add(lasts)
	if len(r.until) > max(r.prune, 100) {
		maps.DeleteFunc(r.until, func(_ string, until time.Time) bool { return now.After(until) })
		r.prune = 2 * len(r.until)
	}
}

func (r *recent) has(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Now().Before(r.until[id])
}

func (r *recent) remove(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.until, id)
}
