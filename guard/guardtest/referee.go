package guardtest

import (
	"fmt"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
)

// A tenure is one lease of a worker's: from the grant until it is released or has expired. What the
// worker's goroutine alone knows of it is not guarded.
type tenure struct {
	claim guard.Claim
	fence uint64    // 0 until it is granted
	gone  time.Time // from then on it has ended for certain

	certain time.Time // until then it is held for certain; guarded by the referee
}

func (t *tenure) String() string {
	return fmt.Sprintf("key %q, claim %s, fence %d, TTL %v", t.claim.Key, t.claim.ID, t.fence, t.claim.TTL)
}

// A referee knows who holds a key for certain: from when the grant has come until the TTL has passed
// since the request was sent, or the release is about to be sent. The store may see a lease for longer
// than that, but two that overlap are a fault of the store, however slow the machine is.
type referee struct {
	mu         sync.Mutex
	holders    map[string]*tenure
	fences     map[string]uint64 // the highest that was heard of
	grants     map[string]int
	answers    int
	failures   []error
	objections []string
}

func newReferee() *referee {
	return &referee{holders: map[string]*tenure{}, fences: map[string]uint64{}, grants: map[string]int{}}
}

// highest returns the highest fence of the key so far. A claim that is sent from now on is granted a
// higher one.
func (r *referee) highest(key string) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fences[key]
}

// granted is told that the claim of t was granted, and returns its tenure: t, or another if the one before
// had ended when the claim was repeated. known was the highest fence when the request was sent.
func (r *referee) granted(t *tenure, fence, known uint64, sent time.Time) *tenure {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers++
	key := t.claim.Key
	switch {
	case t.fence == fence: // a repeat
	case t.fence != 0 && time.Now().Before(t.certain):
		r.objectLocked("a repeated claim was granted with fence %d: %v", fence, t)
	case fence <= known:
		r.objectLocked("fence %d was granted when %d had been in use: %v", fence, known, t)
	default:
		t = &tenure{claim: t.claim, fence: fence}
		r.grants[key]++
	}
	r.extendLocked(t, sent)
	r.fences[key] = max(r.fences[key], fence)

	now := time.Now()
	if !now.Before(t.certain) {
		return t // it may have ended while the answer was on its way
	}
	if h := r.holders[key]; h != nil && h != t && now.Before(h.certain) {
		r.objectLocked("two hold a key: %v; and %v", h, t)
	}
	r.holders[key] = t
	return t
}

func (r *referee) extendLocked(t *tenure, sent time.Time) {
	t.certain = sent.Add(t.claim.TTL)
	t.gone = time.Now().Add(t.claim.TTL + 4*early)
}

// renewed is told that t was renewed with that fence.
func (r *referee) renewed(t *tenure, fence uint64, sent time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers++
	t.fence = max(t.fence, fence)
	r.fences[t.claim.Key] = max(r.fences[t.claim.Key], t.fence)
	r.extendLocked(t, sent)
}

// refused is told that t is not held, and objects if it has to be.
func (r *referee) refused(t *tenure, what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers++
	if t.fence != 0 && time.Now().Before(t.certain) {
		r.objectLocked("the store said %s of its holder: %v", what, t)
	}
	t.gone = time.Now()
}

// leaving is told that t is about to be released, and returns until when it would have been held.
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

// verdict fails the check if there were objections.
func (r *referee) verdict(s *subject) {
	r.mu.Lock()
	defer r.mu.Unlock()
	require.Empty(s, r.objections)
	require.Less(s, len(r.failures), 1+r.answers/2, "too many calls had no answer: %v", r.failures)
	require.Len(s, r.grants, fuzzKeys, "keys that were granted")
}
