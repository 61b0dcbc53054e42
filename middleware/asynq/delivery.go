package guardasynq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// A delivery is one task that asynq has given to a worker.
type delivery struct {
	m     *middleware
	ctx   context.Context
	task  *asynq.Task
	next  asynq.Handler
	start time.Time

	id, queue string
	left      int     // attempts after this one
	known     bool    // it comes from an asynq server, so the fields above are set
	server    *server // the asynq server, if its Config went through Configure
	leave     func()  // notifies the server that the task leaves the middleware

	key      string         // what the KeyFunc found
	identity string         // the store's key
	repeats  string         // the key of WithOnce, if it is another one
	single   bool           // identity is the key of WithOnce
	once     *guard.Lease   // the lease that leaves the done marker
	own      []guard.Option // of WithTaskLease
	started  bool           // the handler was called
	ended    time.Time      // it had the key until then, or a while longer
	returned bool           // the handler returned err
	err      error
	asked    *PostponedError // what the handler has asked for
	waits    bool            // it is counted in waiters
	waiting  *wait           // its wait in its worker
	position int             // among the postponed tasks; 0 if it has none
	skip     string          // why it did not run: "busy" or "done"
	holder   string          // the label of the holder at that time
	repeated bool            // another task has the lease of WithOnce
	hurries  bool            // its Deadline has shortened its delay
	outcome  Outcome

	ahead    sync.WaitGroup
	hasNext  bool // the next one waited in a worker when the run ended
	hasAhead bool // the next one was brought during the run; ahead says when this is known

	bound     *bound
	overtaken bool // a newer task waits: this one has nothing to do
}

func (m *middleware) deliver(ctx context.Context, task *asynq.Task, next asynq.Handler) *delivery {
	d := &delivery{m: m, ctx: ctx, task: task, next: next, start: time.Now()}
	d.server, d.leave = enter(ctx)
	m.server.Store(d.server)
	d.id, d.known = asynq.GetTaskID(ctx)
	d.queue, _ = asynq.GetQueueName(ctx)
	retried, _ := asynq.GetRetryCount(ctx)
	most, _ := asynq.GetMaxRetry(ctx)
	d.left = max(0, most-retried)
	d.outcome = Outcome{Name: m.name, Type: task.Type(), Queue: d.queue}
	if m.name == "" {
		d.outcome.Name = typeName(task.Type())
	}
	return d
}

// process runs the handler, or ensures that it will be run. It returns the error for asynq.
func (d *delivery) process() error {
	d.end(ResultKeyInvalid, nil) // if the KeyFunc panics
	if err := d.findKeys(); err != nil {
		d.end(ResultKeyInvalid, err)
		return fmt.Errorf("guardasynq: key of task %q: %w", d.task.Type(), err)
	}
	if d.identity == "" {
		return d.unguarded()
	}
	d.position = d.m.parked.remove(d.identity, d.id)
	if d.isRepeated() {
		d.end(ResultCoalesced, nil)
		d.handOff(time.Now()) // if it was brought, it brings the next one
		return nil
	}
	d.end(ResultRefused, nil) // if the function of WithTaskLease panics
	if err := d.findOptions(); err != nil {
		return err
	}
	for err := d.try(); ; {
		tell, settled := d.settle(err)
		if settled {
			return tell
		}
		select { // asynq's Redis cannot be asked, and asynq itself would lose the task
		case <-time.After(unsettledPause):
		case <-d.ctx.Done():
			d.end(ResultCanceled, tell)
			return tell
		}
		if !d.started {
			err = d.try()
		}
	}
}

// findKeys asks the KeyFuncs.
func (d *delivery) findKeys() error {
	ask := func(f KeyFunc, use string) (key, identity string, err error) {
		if f == nil {
			return "", "", nil
		}
		key, err = f(d.ctx, d.task)
		if errors.Is(err, ErrUnguarded) {
			return "", "", nil
		}
		if err == nil {
			key, err = found(d.task, key, "the key")
		}
		return key, d.m.identity(d.task, use, key), err
	}
	var err error
	if d.key, d.identity, err = ask(d.m.key, ""); err != nil || d.m.once == 0 && d.m.key != nil {
		return err
	}
	key, repeats, err := ask(d.m.onceBy, "once ")
	if d.identity == "" { // one lease does for both
		d.key, d.identity, d.single = key, repeats, true
		return err
	}
	d.repeats = repeats
	return err
}

// unguarded runs the handler without a lease.
func (d *delivery) unguarded() error {
	d.started = true
	d.server.makeRoom()
	d.end(ResultUnguarded, nil)
	d.err = d.next.ProcessTask(context.WithValue(d.ctx, runKey{}, d), d.task)
	d.returned = true
	d.outcome.Err = d.err
	return d.err
}

// unsettledPause is between two tries to run a task, or to enqueue it again, if neither can be
// done.
const unsettledPause = time.Second

// try runs the handler if it gets the key.
func (d *delivery) try() error {
	err := d.do(d.ctx, 0)
	if d.ran(err) {
		return err
	}
	if wait := d.wait(); wait > 0 && d.m.waiters.enter(d.identity) {
		if err = d.waitFor(wait); d.ran(err) {
			return err
		}
	} else if d.m.waitsForKeys() && d.server != nil && d.server.mayHold() {
		if err = d.do(d.ctx, longestHold); d.ran(err) {
			return err
		}
	}
	if d.m.busy == RetryLater && d.known && !d.needsCopy() {
		d.park(d.id) // and then ask again: a run that ended meanwhile has not seen it there
		if err = d.do(d.ctx, 0); d.ran(err) {
			d.m.parked.remove(d.identity, d.id)
		}
	}
	for tries := 0; tries < bringTries && d.isUndecided(); tries++ {
		time.Sleep(bringPause)
		if err = d.do(d.ctx, 0); d.ran(err) {
			break
		}
	}
	return err
}

// isUndecided reports whether WithBusy should not end the task yet: another task has the lease of
// WithOnce, and no run has the key. The other task may be about to find the key busy, and to give
// up. If it runs, it does so under another key.
func (d *delivery) isUndecided() bool {
	return d.repeated && d.m.endsTasks() && !errors.Is(d.m.look(d.ctx, d.identity), guard.ErrBusy)
}

// waitFor waits in the worker until the worker is needed for another task.
func (d *delivery) waitFor(wait time.Duration) error {
	d.waits = true
	defer d.waitsNoMore()
	ctx, cancel := context.WithCancel(d.ctx)
	defer cancel()
	if d.server != nil && (d.m.busy == RetryLater || d.m.busy == Coalesce) {
		d.waiting = d.server.wait(cancel)
	}
	err := d.do(ctx, wait)
	gone := !d.started && d.waiting.end()
	d.waiting = nil
	if gone {
		err = d.do(d.ctx, 0)
	}
	return err
}

// ran reports whether a try ran the handler, or ended with anything but ErrBusy.
func (d *delivery) ran(err error) bool { return d.started || !errors.Is(err, guard.ErrBusy) }

// wait returns how long the task may wait for its key. A task that ends if it does not run may
// always wait. Any other task waits only while another worker is idle.
func (d *delivery) wait() time.Duration {
	wait := d.m.wait
	if d.m.busy == RetryLater || d.m.busy == Coalesce {
		if d.server != nil && !d.server.hasRoom() {
			return 0
		}
		if wait < 0 && d.server != nil && d.m.busy == RetryLater {
			wait = defaultWait
		}
	}
	if deadline, ok := d.ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline)-time.Second)
	}
	return wait
}

func (d *delivery) waitsNoMore() {
	if d.waits {
		d.waits = false
		d.m.waiters.leave(d.identity)
	}
}

// do runs the handler if it gets the key within wait. It ends before the task's deadline, unless
// the handler does not.
func (d *delivery) do(ctx context.Context, wait time.Duration) error {
	ctx, d.bound = newBound(ctx)
	defer d.bound.end()
	err := d.guarded(ctx, wait)
	if !d.started && errors.Is(err, errNoTime) {
		return &guard.StoreError{Op: driver.OpAcquire, Key: d.identity, Kind: driver.KindTimeout, Err: errNoTime}
	}
	return err
}

func (d *delivery) guarded(ctx context.Context, wait time.Duration) error {
	until := time.Now().Add(wait)
	once := append(d.leaseOptions(wait), guard.WithOnce(d.m.once), guard.WithLimit(0))
	switch {
	case d.single:
		return d.m.guard.Do(ctx, d.identity, func(ctx context.Context) error {
			d.once, _ = guard.FromContext(ctx)
			return d.run(ctx)
		}, once...)
	case d.repeats != "":
		d.repeated = true
		return d.m.guard.Do(ctx, d.repeats, func(ctx context.Context) error {
			d.once, _ = guard.FromContext(ctx)
			d.repeated = false
			// the rest of the wait, which is for both leases
			return d.m.guard.Do(ctx, d.identity, d.run, d.leaseOptions(time.Until(until))...)
		}, append(once, d.m.guard.Adapter().Auxiliary())...)
	default:
		return d.m.guard.Do(ctx, d.identity, d.run, d.leaseOptions(wait)...)
	}
}

// run calls the handler. ctx is that of the lease.
func (d *delivery) run(ctx context.Context) error {
	if !d.bound.pause() {
		return errNoTime
	}
	defer d.bound.resume()
	if d.waiting.end() {
		return context.Canceled // by the server, at the same moment
	}
	defer func() { d.ended = time.Now() }()
	d.waitsNoMore()
	d.server.makeRoom()
	if d.m.busy == Coalesce {
		switch err := d.overtake(); {
		case errors.Is(err, errOvertaken):
			d.overtaken = true
			return nil
		case err != nil:
			return err
		}
	}
	d.started = true
	d.outcome.Fence = guard.Fence(ctx)
	d.end(ResultRan, nil)
	d.bringAhead()
	d.err = d.next.ProcessTask(context.WithValue(ctx, runKey{}, d), d.task)
	d.returned = true
	d.hasNext = d.m.waiters.any(d.identity)
	if d.err == nil && d.m.once > 0 {
		d.keepResult()
	}
	var p *PostponedError
	if errors.As(d.err, &p) && p.asked && !p.settled {
		d.asked = p
	}
	return d.err
}

func (d *delivery) end(r Result, err error) { d.outcome.Result, d.outcome.Err = r, err }

// finish is called when the delivery has a result for asynq, or when the handler has panicked.
func (d *delivery) finish() {
	d.leave()
	if d.started && d.identity != "" {
		d.handOff(d.ended)
	}
	d.outcome.Aborted = d.started && !d.returned
	d.outcome.Duration = time.Since(d.start)
	d.m.guard.Adapter().Report(d.ctx, guard.Outcome{
		Adapter: "asynq", Result: string(d.outcome.Result), Name: d.outcome.Name, Start: d.start, Duration: d.outcome.Duration, Fence: d.outcome.Fence,
		Aborted: d.outcome.Aborted, Err: d.outcome.Err, Skipped: d.skipped(), Label: d.holder,
	}, append(slices.Clip(d.m.lease), d.own...)...)
	for _, o := range d.m.observers {
		if o.End != nil {
			contained(func() { o.End(d.ctx, d.outcome) })
		}
	}
}
