package guardasynq

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/seed-1795987d/onerun/guard"
)

// The delay of a task that did not run, if nothing else sets it.
const (
	defaultDelay = 5 * time.Second
	longestDelay = time.Minute
)

// What asynq's own intervals are if the Config sets none.
const (
	asynqTaskCheckInterval        = time.Second
	asynqDelayedTaskCheckInterval = 5 * time.Second
)

// returnSlack is for all that has to happen between the return of a task and its deadline, beside
// asynq's intervals.
const returnSlack = time.Second

// delay returns for how long to postpone a task that did not run because of err.
func (d *delivery) delay(err error) time.Duration {
	after := d.m.every
	if after == 0 {
		after = defaultDelay
		if left := leaseLeft(err); left > 0 {
			after = min(left, longestDelay)
		}
	}
	return d.beforeDeadline(after + rand.N(after/4+time.Millisecond)) //nolint:gosec // jitter
}

// leaseLeft returns how long the lease that is in the way still lasts, or 0.
func leaseLeft(err error) time.Duration {
	var busy *guard.BusyError
	if errors.As(err, &busy) {
		return max(0, busy.Left)
	}
	return 0
}

// beforeDeadline returns the delay, or a shorter one after which asynq still gives the task to a
// worker in time: it counts a failure, or archives the task, at its Deadline. It returns 0 if there
// is no such delay.
func (d *delivery) beforeDeadline(after time.Duration) time.Duration {
	ends, ok := d.ctx.Deadline() // of this delivery: not after the task's own Deadline
	spare := d.server.returnTime() + returnSlack
	if !ok || !d.known || time.Until(ends)-spare >= after {
		return after
	}
	if info, err := d.m.inspector.GetTaskInfo(d.queue, d.id); err == nil {
		if ends = info.Deadline; ends.IsZero() {
			return after // a Timeout counts anew for each delivery
		}
	}
	if latest := max(0, time.Until(ends)-spare); latest < after {
		d.hurries = true
		return latest
	}
	return after
}

// hurry brings the task, which is parked, when the lease that is in its way ends, if asynq's
// intervals are too long for its Deadline. Nothing notifies of a lease that ends because its
// holder has died.
func (d *delivery) hurry(busy error) {
	if d.hurries {
		d.m.parked.lookAfter(d.identity, leaseLeft(busy))
	}
}
