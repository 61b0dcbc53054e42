package guardtest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// tryAcquire is acquire for goroutines other than the test's, which must not end the test.
func (p process) tryAcquire(c driver.Claim) (driver.Answer, error) {
	ctx, cancel := p.context()
	defer cancel()
	return p.locker.TryAcquire(ctx, c)
}

func (p process) tryRenew(c driver.Claim) (bool, error) {
	ctx, cancel := p.context()
	defer cancel()
	return p.locker.Renew(ctx, c)
}

func (p process) tryRelease(c driver.Claim, after driver.After) (bool, error) {
	ctx, cancel := p.context()
	defer cancel()
	return p.locker.Release(ctx, c, after)
}

// A worker uses a few keys at random.
type worker struct {
	*subject
	referee *referee
	random  *rand.Rand
	goesOn  func() bool
	leases  map[string]*tenure // current leases, by key
	former  []*tenure          // earlier leases
}

func (w *worker) work() {
	for w.goesOn() {
		key := fmt.Sprintf("key:%d", w.random.IntN(fuzzKeys))
		switch t := w.leases[key]; {
		case w.chance(10):
			w.interfere(key)
		case w.chance(15) && len(w.former) > 0:
			w.useLate()
		case t == nil:
			w.claimKey(key)
		default:
			w.use(t)
		}
		time.Sleep(time.Duration(w.random.IntN(3000)) * time.Microsecond)
	}
}

func (w *worker) chance(percent int) bool { return w.random.IntN(100) < percent }

// process picks the process for the next call. A claim is the same in all processes.
func (w *worker) process() process {
	if w.chance(50) {
		return w.here
	}
	return w.there
}

func (w *worker) claimKey(key string) {
	c := w.claim(key)
	shortest := max(20*time.Millisecond, 2*w.backend.MinTTL)
	c.TTL = shortest + time.Duration(w.random.Int64N(3*int64(shortest)))
	c.Fences.Reserve = w.random.IntN(3)
	w.ask(&tenure{claim: c})
}

// ask makes or repeats the claim of t.
func (w *worker) ask(t *tenure) {
	p, c := w.process(), t.claim
	known := w.referee.highest(c.Key)
	sent := time.Now()
	g, err := p.tryAcquire(c)
	switch {
	case err != nil:
		w.referee.failed(err)
		w.referee.leaving(t)
		w.drop(t)
		_, _ = p.tryRelease(c, driver.After{}) // it may have been granted
	case g.State == driver.Granted:
		w.leases[c.Key] = w.referee.granted(t, g, known, sent)
	default:
		w.referee.refused(t, g.State.String()+" to a repeated claim")
		w.drop(t)
	}
}

// use renews, repeats, releases or abandons a lease.
func (w *worker) use(t *tenure) {
	switch n := w.random.IntN(100); {
	case n < 20:
		w.ask(t)
	case n < 55:
		w.renewLease(t)
	case n < 85:
		w.releaseLease(t)
	default: // as if the process had died
		w.drop(t)
		w.former = append(w.former, t)
	}
}

func (w *worker) drop(t *tenure) { delete(w.leases, t.claim.Key) }

func (w *worker) renewLease(t *tenure) {
	c := t.claim
	c.Fence = t.fence
	if w.chance(20) {
		c.Fence += uint64(w.random.IntN(5))
	}
	sent := time.Now()
	held, err := w.process().tryRenew(c)
	switch {
	case err != nil:
		w.referee.failed(err)
		w.drop(t) // it is unknown whether its fence was raised
	case held:
		w.referee.renewed(t, c.Fence, sent)
	default:
		w.referee.refused(t, "false to a renewal")
		w.drop(t)
		w.former = append(w.former, t)
	}
}

func (w *worker) releaseLease(t *tenure) {
	var after driver.After
	if w.chance(20) {
		after = driver.After{Keep: time.Duration(w.random.IntN(10)) * time.Millisecond, Done: w.chance(50)}
	}
	w.drop(t)
	certain := w.referee.leaving(t)
	held, err := w.process().tryRelease(t.claim, after)
	if err != nil {
		w.referee.failed(err)
		return
	}
	if !held && time.Now().Before(certain) {
		w.referee.object("the holder's release was refused: %v", t)
	}
	t.gone = time.Now().Add(after.Keep + w.late())
	if !held {
		t.gone = time.Time{}
	}
	w.former = append(w.former, t)
}

// useLate renews or releases a lease that has certainly ended.
func (w *worker) useLate() {
	i := w.random.IntN(len(w.former))
	t := w.former[i]
	if !time.Now().After(t.gone) {
		return
	}
	var after driver.After
	if w.chance(50) {
		after = driver.After{Keep: long, Done: w.chance(50)}
	}
	w.expectRefusal(t.claim, after, "a lease that has ended")
}

// interfere renews or releases a claim that was never made.
func (w *worker) interfere(key string) {
	w.expectRefusal(w.claim(key), driver.After{}, "a claim that was never made")
}

// expectRefusal renews or releases a claim that is not held. The store must refuse that.
func (w *worker) expectRefusal(c driver.Claim, after driver.After, what string) {
	ask := func() (bool, error) { return w.process().tryRelease(c, after) }
	if w.chance(50) {
		c.TTL = long
		ask = func() (bool, error) { return w.process().tryRenew(c) }
	}
	switch held, err := ask(); {
	case err != nil:
		w.referee.failed(err)
	case held:
		w.referee.object("%s was renewed or released: %q", what, c.ID)
	}
}
