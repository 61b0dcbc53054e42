package guardasynq

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/internal/claim"
)

// With Coalesce, a task that finds its key busy becomes the follow-up of the run: it is enqueued
// under one of two IDs made from the key. The task with one ID can wait while the task with the
// other runs. A newer task replaces a follow-up that waits. A process that changes the follow-ups
// of a key holds a lease for that.
//
// A follow-up that has ended, but is kept by asynq, in the archive or for its Retention, keeps its
// ID: the next one gets a further ID, whose number is a counter in the store of the leases.

// arrivedHeader is the header of a follow-up that says when the original task came to a worker, in
// nanoseconds since 1970.
const arrivedHeader = "Onerun-Arrived"

// slots are the two places of follow-ups of a key, and the names of their counters.
var slots = []string{"a", "b"}

func (d *delivery) slotID(slot string, n int64) string {
	id := "follow-up~" + d.Identity + "~" + slot
	if n > 0 {
		id += strconv.FormatInt(n, 10)
	}
	return id
}

func (d *delivery) isFollowUp() bool { return strings.HasPrefix(d.id, d.slotID("", 0)) }

// A followUp is what asynq has in a slot.
type followUp struct {
	id, slot string
	n        int64
	info     *asynq.TaskInfo // nil if there is none
}

// waits reports whether asynq has yet to give it to a worker.
func (f followUp) waits() bool {
	if f.info == nil {
		return false
	}
	switch f.info.State {
	case asynq.TaskStateActive, asynq.TaskStateArchived, asynq.TaskStateCompleted:
		return false
	default:
		return true
	}
}

// comes reports whether it waits, or is with a worker.
func (f followUp) comes() bool {
	return f.waits() || f.info != nil && f.info.State == asynq.TaskStateActive
}

// arrived returns when the original task came to a worker.
func (f followUp) arrived() int64 {
	at, _ := arrivedAt(f.info.Headers)
	return at
}

// followUps returns the follow-ups of the key but the task itself.
func (d *delivery) followUps() (all []followUp, err error) {
	for _, slot := range slots {
		n, err := d.raiseSlot(slot, 0)
		if err != nil {
			return nil, err
		}
		f := followUp{id: d.slotID(slot, n), slot: slot, n: n}
		if f.id == d.id {
			continue
		}
		f.info, err = d.m.inspector.GetTaskInfo(d.queue, f.id)
		if err != nil && !errors.Is(err, asynq.ErrTaskNotFound) && !errors.Is(err, asynq.ErrQueueNotFound) {
			return nil, err
		}
		all = append(all, f)
	}
	return all, nil
}

// raiseSlot raises a counter of the key, such as the number in the IDs of a slot, and returns what
// it was.
func (d *delivery) raiseSlot(slot string, n int64) (int64, error) {
	ledger, _ := d.m.core.Guard.Adapter().Ledger()
	return ledger.Raise(d.ctx, d.Identity+":follow-up", slot, n)
}

// arrived returns when the task, or the original of a follow-up, came to a worker. It is 0, older
// than all, for a task that has run before and is retried: a newer task may have done its work
// meanwhile.
func (d *delivery) arrived() (int64, error) {
	if at, ok := arrivedAt(d.task.Headers()); ok {
		return at, nil
	}
	self, err := d.m.inspector.GetTaskInfo(d.queue, d.id)
	if err != nil {
		return 0, err
	}
	if self.Retried > 0 || self.LastErr != "" && !strings.Contains(self.LastErr, textPostponed) {
		return 0, nil
	}
	return d.Outcome.Start.UnixNano(), nil
}

func arrivedAt(headers map[string]string) (int64, bool) {
	at, err := strconv.ParseInt(headers[arrivedHeader], 10, 64)
	return at, err == nil
}

// coalesce ensures that there is one more run after the current one, of this task or of a newer
// one.
func (d *delivery) coalesce(isBusy error) (answer error, final bool) {
	if !d.fromServer {
		return d.postpone(claim.Postponed, isBusy)
	}
	var replaced, shortened bool
	var placed string
	err := d.changing(func() error {
		if replaced = d.isReplaced(); replaced {
			return nil
		}
		arrived, err := d.arrived()
		if err != nil {
			return err
		}
		others, err := d.followUps()
		if err != nil {
			return err
		}
		if replaced = d.replace(others, arrived); replaced {
			return nil
		}
		if d.isFollowUp() && !d.needsCopy() {
			return nil // it waits as what it is
		}
		var after time.Duration
		after, shortened = d.delay(isBusy)
		placed, err = d.place(others, arrived, after)
		return err
	})
	switch {
	case errors.Is(err, guard.ErrBusy):
		// other calls keep changing them: try again while this delivery knows when it came
		d.End(claim.Postponed, errors.Join(isBusy, err))
		return isBusy, false
	case replaced:
		d.End(resultCoalesced, nil)
		return nil, true
	case placed == "":
		if !d.needsCopy() {
			d.enqueue(d.id)
		}
		if err != nil {
			isBusy = fmt.Errorf("%w (%w)", isBusy, err)
		}
		return d.postpone(claim.Postponed, isBusy)
	}
	d.End(resultCoalesced, nil)
	if shortened {
		d.enqueue(placed)
		d.m.backlog.lookAfter(d.Identity, claim.Left(isBusy))
	}
	d.wakeIfFree(placed)
	// an outer middleware of ours may keep out the follow-up (WithOnce) if this run ends well
	if _, inside := d.ctx.Value(runKey{}).(*delivery); inside {
		return &PostponedError{Copy: placed, Err: isBusy}, true
	}
	return nil, true
}

// replaceOlder is called at the beginning of a run. An older follow-up need not run any more. If a
// newer one waits, or has replaced this task, this task need not run: replaceOlder returns true.
func (d *delivery) replaceOlder() (replaced bool) {
	if d.isReplaced() {
		return true
	}
	others, err := d.followUps()
	if err != nil || !slices.ContainsFunc(others, followUp.comes) {
		return false // the run takes place, and at worst the older one after it
	}
	_ = d.changing(func() error { // likewise
		arrived, err := d.arrived()
		if err != nil {
			return err
		}
		if others, err = d.followUps(); err != nil {
			return err
		}
		if replaced = d.replace(others, arrived); replaced {
			return nil
		}
		for _, f := range others {
			if f.comes() && f.arrived() <= arrived { // it is with another worker, see isReplaced
				_, err = d.raiseSlot(f.slot+replacedSuffix, f.arrived()/int64(time.Microsecond))
			}
		}
		return err
	})
	return replaced
}

// replacedSuffix follows a slot in the name of the counter that says which task of the slot a newer
// one has replaced: when that task arrived, in microseconds.
const replacedSuffix = " replaced"

// isReplaced reports whether the task is a follow-up that was with its worker when a newer task
// began to run.
func (d *delivery) isReplaced() bool {
	at, ok := arrivedAt(d.task.Headers())
	for _, slot := range slots {
		if ok && strings.HasPrefix(d.id, d.slotID(slot, 0)) {
			n, err := d.raiseSlot(slot+replacedSuffix, 0)
			return err == nil && n == at/int64(time.Microsecond)
		}
	}
	return false
}

// changing runs f under a lease, so that no other call changes the follow-ups of the key.
func (d *delivery) changing(f func() error) error {
	ctx, bound := newBound(d.ctx)
	defer bound.end()
	lease, err := d.m.core.Guard.Acquire(ctx, d.Identity+":follow-up", guard.WithTTL(10*time.Second), guard.WithWait(3*time.Second), guard.WithName(d.Outcome.Name), guard.WithLimit(0),
		d.m.core.Guard.Adapter().Auxiliary())
	if err != nil {
		return err
	}
	defer func() { _ = lease.Release(d.ctx) }() // it ends by itself otherwise
	return f()
}

// replace deletes what waits and is older than the task, and reports whether something newer waits,
// which replaces the task.
func (d *delivery) replace(others []followUp, arrived int64) (replaced bool) {
	for i, f := range others {
		if !f.waits() {
			continue
		}
		if f.arrived() > arrived {
			return true
		}
		d.remove(&others[i])
	}
	return false
}

// remove deletes a follow-up. It stays what it is if it was given to a worker meanwhile.
func (d *delivery) remove(f *followUp) {
	if err := d.m.inspector.DeleteTask(d.queue, f.id); err == nil || errors.Is(err, asynq.ErrTaskNotFound) {
		f.info = nil
	}
}

// place enqueues the task as a follow-up, and returns the ID; it is empty if both are with
// workers.
func (d *delivery) place(others []followUp, arrived int64, after time.Duration) (string, error) {
	opts, err := d.taskOptions()
	if err != nil {
		return "", err
	}
	headers := d.headers()
	headers[arrivedHeader] = strconv.FormatInt(arrived, 10)
	for i := range others {
		f := &others[i]
		if f.info != nil && !f.comes() { // it has ended, and asynq keeps it
			if _, err := d.raiseSlot(f.slot, f.n+1); err != nil {
				return "", err
			}
			f.id, f.info = d.slotID(f.slot, f.n+1), nil
		}
		if f.info != nil {
			continue
		}
		err := d.send(f.id, headers, append(opts, asynq.ProcessIn(after)))
		if err == nil {
			return f.id, nil
		}
		if !errors.Is(err, asynq.ErrTaskIDConflict) {
			return "", err
		}
	}
	return "", nil
}

// wakeIfFree wakes a task that was enqueued to wait for the key, if the run that it was to follow
// has ended meanwhile.
func (d *delivery) wakeIfFree(id string) {
	if d.m.core.Look(d.ctx, d.Identity) != nil {
		return
	}
	// this one, or one that came before it
	if d.m.busy == Coalesce || !d.m.wakeNext(d.Identity, time.Now()) {
		d.m.wake(waiter{queue: d.queue, id: id})
	}
}

// wakeFollowUps wakes what waits, or is about to, now that a run has ended.
func (d *delivery) wakeFollowUps() {
	others, err := d.followUps()
	if err != nil {
		return // it comes by itself
	}
	for _, f := range others {
		if f.comes() {
			d.m.wake(waiter{queue: d.queue, id: f.id})
		}
	}
}
