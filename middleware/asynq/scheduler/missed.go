package guardscheduler

import (
	"fmt"
	"time"
)

// A MissedError is a range of ticks that were not enqueued, because no process could do so before
// the start deadline, and WithCatchUp did not ask for them. One process reports it to the
// PostEnqueueFunc and the EnqueueErrorHandler. If the store then does not answer, or the process
// dies, another process may report some of these ticks again.
type MissedError struct {
	Type, Spec  string    // of the entry
	First, Last time.Time // ticks
	// Ticks is how many there are. Of more than 100,000, it counts only a part.
	Ticks int
}

func (e *MissedError) Error() string {
	if e.Ticks == 1 {
		return fmt.Sprintf("guardscheduler: the tick of %q (%s) at %s was missed", e.Type, e.Spec, e.First.UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf("guardscheduler: %d ticks of %q (%s) from %s to %s were missed",
		e.Ticks, e.Type, e.Spec, e.First.UTC().Format(time.RFC3339), e.Last.UTC().Format(time.RFC3339))
}

// reportAfter is how long a tick is tried before a process reports that it cannot be enqueued.
const reportAfter = 5 * time.Second

// reportOnce reports that a tick cannot be enqueued for now, once, if that has lasted for a while.
func (r *runner) reportOnce(e *entry, tick time.Time, err error) {
	if !e.trouble.tick.Equal(tick) || e.trouble.since.IsZero() {
		e.trouble = trouble{tick: tick, since: time.Now()}
	}
	if r.ctx.Err() == nil && !e.trouble.reported && time.Since(e.trouble.since) >= reportAfter {
		e.trouble.reported = true
		r.report(e, tick, err)
	}
}

// trouble is a tick that cannot be enqueued.
type trouble struct {
	tick     time.Time
	since    time.Time // when that was found
	reported bool
}

// report calls the caller's hooks for a task that was not enqueued.
func (r *runner) report(e *entry, tick time.Time, err error) {
	o := outcomeOf(err)
	if o.Tick.IsZero() {
		o.Tick = tick
	}
	r.observe(e, o)
	if r.post != nil {
		r.post(nil, err)
	}
	if r.onError != nil {
		r.onError(e.task, e.opts, err)
	}
}
