package redisstore

import (
	"maps"
	"sync"
	"time"
)

// recentClaims are claims in a queue for which a caller is still there, although it has not
// subscribed: its request is under way, or was answered a moment ago. The zero value has none. It
// is safe for concurrent use.
type recentClaims struct {
	mu    sync.Mutex
	until map[string]time.Time // by ID
	prune int                  // with how many claims to look for old ones
}

// underWay, as the time of a claim, is longer than any request takes.
const underWay = time.Hour

// add adds a claim for some time, or changes its time.
func (r *recentClaims) add(id string, lasts time.Duration) {
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

func (r *recentClaims) has(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Now().Before(r.until[id])
}
