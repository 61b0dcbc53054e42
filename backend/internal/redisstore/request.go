package redisstore

import (
	"context"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// A request is a call on its way.
type request struct {
	store    *Store
	ctx      context.Context
	call     Call
	bySource bool                                    // the server did not know the script
	index    int                                     // for done
	done     func(i int, a driver.Answer, err error) // or nil if a caller waits
	ready    chan signal                             // has room for one of each signal
	answer   any
	err      error
	alarm    *time.Timer // sends overdue
	late     bool        // it may still do so, although the wait is over
	key      prefixed    // the call's first key
}

// A signal wakes a caller that waits for an answer.
type signal bool

const (
	answered signal = true
	overdue  signal = false // there is none yet
)

// finish gives the request its answer, or sends it once more if the answer asks for that. Nothing
// may use the request afterwards.
func (r *request) finish(answer any, err error) {
	s, i, done := r.store, r.index, r.done
	switch {
	case r.call.again(r.ctx, err) || r.call.switchToShared(err):
		r.bySource = false
		s.start(r)
	case done == nil:
		r.answer, r.err = answer, err
		r.ready <- answered
	case r.call.Op == driver.OpAcquire:
		grant, err := s.toGrant(&r.call, answer, err)
		s.free(r)
		done(i, grant, err)
	default:
		n, err := s.toInt(&r.call, answer, err)
		s.free(r)
		done(i, driver.Answer{Held: n == 1}, err)
	}
}

func (s *Store) toInt(c *Call, answer any, err error) (int64, error) {
	n, ok := answer.(int64)
	switch {
	case c.provesLost(err):
		return 0, nil
	case err != nil:
		return 0, s.error(c, err)
	case !ok:
		return 0, s.error(c, ErrAnswer)
	}
	return n, nil
}

// toGrant reads the answer of a script that asks for a key, see acquire.lua of the backends and
// queue.lua.
func (s *Store) toGrant(c *Call, answer any, err error) (driver.Answer, error) {
	if err != nil && !isShortOfAcks(err) {
		return driver.Answer{}, s.error(c, err)
	}
	grant, ok := toGrant(answer)
	if _, alone := answer.(int64); ok && alone && c.acquires.Fences.Hint != 0 { // acquire_quick.lua
		grant.Fence, grant.Clock = c.acquires.Fences.Hint, grant.Fence
		ok = !grant.Held
	}
	switch {
	case !ok:
		return driver.Answer{}, s.error(c, ErrAnswer)
	case err != nil && grant.State == driver.Granted:
		// replicas have nothing to acknowledge if it was not granted
		return driver.Answer{}, s.error(c, err)
	}
	if grant.State == driver.Granted && c.locker != nil {
		c.locker.crowds.granted(c.Key)
	}
	return grant, nil
}

// glance is how long a caller waits before it watches its context too.
const glance = 20 * time.Millisecond

// wait waits for the answer, and returns an error if ctx ends first. At first it does not watch
// ctx: most answers come soon, and asking a call's context for its Done channel makes a timer. One
// channel for both signals costs less than a select of two.
func (r *request) wait(ctx context.Context) error {
	select {
	case <-r.ready: // a direct call has its answer already
		return nil
	default:
	}
	if r.alarm == nil {
		r.alarm = time.AfterFunc(glance, func() { r.ready <- overdue })
	} else {
		r.alarm.Reset(glance)
	}
	if <-r.ready == answered {
		r.late = !r.alarm.Stop()
		return nil
	}
	select {
	case <-r.ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// dropAbandoned finishes the requests whose contexts have ended, and returns the others, in the
// same slice. A claim without a caller would only have to be released: after a freeze, there may be
// many.
func dropAbandoned(requests []*request) []*request {
	n := 0
	for _, r := range requests {
		if err := r.ctx.Err(); err != nil {
			r.finish(nil, err)
			continue
		}
		requests[n] = r
		n++
	}
	return requests[:n]
}

// lastOf returns a context for a batch, which ends when the last of its requests' contexts has.
func lastOf(batch []*request) (context.Context, context.CancelFunc) {
	if len(batch) == 1 {
		return batch[0].ctx, func() {}
	}
	var last time.Time
	for _, r := range batch {
		deadline, ok := r.ctx.Deadline()
		if !ok {
			return context.WithoutCancel(r.ctx), func() {}
		}
		if deadline.After(last) {
			last = deadline
		}
	}
	return context.WithDeadline(context.WithoutCancel(batch[0].ctx), last)
}
