package guardtest

import (
	"fmt"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// A tenure is one lease of a worker, from the grant until the lease is released or has expired.
// Fields that only the worker's goroutine uses are not guarded.
type tenure struct {
	claim driver.Claim
	fence uint64    // 0 until it is granted
	gone  time.Time // when it has certainly ended

	certain time.Time // until when it is certainly held; guarded by the referee
}

func (t *tenure) String() string {
	return fmt.Sprintf("key %q, claim %s, fence %d, TTL %v", t.claim.Key, t.claim.ID, t.fence, t.claim.TTL)
}

// A referee knows which tenure certainly holds a key. That time begins when the grant arrives. It
// ends when the TTL has passed since the request was sent, or when the release is about to be
// sent. The store may count longer. But if two such times overlap, the store is wrong, however
// slow the machine is.
type referee struct {
	late       time.Duration // see subject.late
	mu         sync.Mutex
	holders    map[string]*tenure
	fences     map[string]uint64 // the highest fence of each key
	grants     map[string]int
	answers    int
	failures   []error
	objections []string
}

func newReferee(late time.Duration) *referee {
	return &referee{late: late, holders: map[string]*tenure{}, fences: map[string]uint64{}, grants: map[string]int{}}
}

// highest returns the highest fence of the key so far. A claim that is sent from now on must be
// granted a higher fence.
func (r *referee) highest(key string) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fences[key]
}

// granted notes that the claim of t was granted, and returns the tenure. That is a new one if an
// earlier tenure of the claim had ended when the claim was repeated. known was the highest fence,
// issued or reserved, when the request was sent.
func (r *referee) granted(t *tenure, g driver.Answer, known uint64, sent time.Time) *tenure {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers++
	key, fence := t.claim.Key, g.Fence
	switch {
	case t.fence == fence: // a repeated claim
	case t.fence != 0 && time.Now().Before(t.certain):
		r.objectLocked("a repeated claim was granted another fence, %d: %v", fence, t)
	case fence <= known:
		r.objectLocked("fence %d was granted, but fence %d was in use already: %v", fence, known, t)
	default:
		t = &tenure{claim: t.claim, fence: fence}
		r.grants[key]++
	}
	r.extendLocked(t, sent)
	r.fences[key] = max(r.fences[key], lastOf(g))

	now := time.Now()
	if !now.Before(t.certain) {
		return t // it may have ended before the answer arrived
	}
	if h := r.holders[key]; h != nil && h != t && now.Before(h.certain) {
		r.objectLocked("two claims hold a key at the same time: %v; and %v", h, t)
	}
	r.holders[key] = t
	return t
}

func (r *referee) extendLocked(t *tenure, sent time.Time) {
	t.certain = sent.Add(t.claim.TTL)
	t.gone = time.Now().Add(t.claim.TTL + r.late)
}

// renewed notes that t was renewed with that fence.
func (r *referee) renewed(t *tenure, fence uint64, sent time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers++
	t.fence = max(t.fence, fence)
	r.fences[t.claim.Key] = max(r.fences[t.claim.Key], t.fence)
	r.extendLocked(t, sent)
}

// refused notes that t is not held any more, and objects if t is certainly held.
func (r *referee) refused(t *tenure, what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers++
	if t.fence != 0 && time.Now().Before(t.certain) {
		r.objectLocked("the store answered the holder with %s: %v", what, t)
	}
	t.gone = time.Now()
}

// leaving notes that t is about to be released, and returns until when it would certainly have
// been held.
func (r *referee) leaving(t *tenure) (certain time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	certain, t.certain = t.certain, time.Time{}
	return certain
}

func (r *referee) failed(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, err)
}

func (r *referee) object(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.objectLocked(format, args...)
}

func (r *referee) objectLocked(format string, args ...any) {
	r.objections = append(r.objections, fmt.Sprintf(format, args...))
}

// sawEachKey reports whether each key has been granted.
func (r *referee) sawEachKey() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.grants) == fuzzKeys
}

// verdict fails the check if there were objections.
func (r *referee) verdict(s *subject) {
	r.mu.Lock()
	defer r.mu.Unlock()
	require.Empty(s, r.objections)
	require.Less(s, len(r.failures), 1+r.answers/2, "too many calls failed: %v", r.failures)
	require.Len(s, r.grants, fuzzKeys, "each key must have been granted")
}
