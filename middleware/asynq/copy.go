package guardasynq

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/seed-1795987d/onerun/middleware/internal/claim"
)

// originHeader is the header of a copy that names the original task. FromTaskID goes by it.
const originHeader = "Onerun-Task-Id"

// enqueueTimeout bounds how long it may take to enqueue a task.
const enqueueTimeout = 10 * time.Second

// snooze postpones a task whose handler returned Snooze.
func (d *delivery) snooze(asked *PostponedError) (answer error, final bool) {
	p := &PostponedError{snoozed: true}
	if d.Err != error(asked) { //nolint:errorlint // one that is wrapped says more
		p.Err = d.Err
	}
	p.After, _ = d.beforeDeadline(asked.After)
	return d.comeBack(claim.Postponed, p, false)
}

// postpone makes a task come back later that did not run, or that an outage cut off.
func (d *delivery) postpone(r claim.Result, err error) (answer error, final bool) {
	p := &PostponedError{Err: err, cutOff: d.Started}
	after, shortened := d.delay(err)
	p.After = after
	answer, final = d.comeBack(r, p, r == claim.Postponed && d.m.requeues())
	if final && shortened && r == claim.Postponed && d.m.requeues() {
		// Nothing notifies of a lease that ends because its holder has died, and asynq's intervals
		// are too long for the Deadline.
		d.m.backlog.lookAfter(d.Identity, claim.Left(err))
	}
	return answer, final
}

// comeBack makes the task come back later: itself, or a copy. It is not final if the task needed a
// copy that could not be enqueued. A copy that waits for its key is added to the backlog.
func (d *delivery) comeBack(r claim.Result, p *PostponedError, waits bool) (answer error, final bool) {
	p.final, p.unconfigured = true, d.fromServer && d.intervals == 0
	d.End(r, p)
	if p.unconfigured {
		d.Outcome.Refused = errNotConfigured
	}
	if !d.needsCopy() {
		return p, true
	}
	id, err := d.enqueueCopy(p.After)
	if errors.Is(err, errGivenUp) {
		d.End(claim.Canceled, errors.Join(p.Err, err))
		return p, true
	}
	if err != nil {
		d.Outcome.Err = errors.Join(p, err)
		return d.Outcome.Err, false
	}
	p.Copy = id
	if waits {
		d.enqueue(id)
		d.wakeIfFree(id)
	}
	return p, true
}

// needsCopy reports whether a copy has to take the task's place if it does not run now. asynq
// archives what fails on the last attempt before it asks IsFailure, and takes no task back under
// its own ID. Without Configure it would count a failure.
func (d *delivery) needsCopy() bool {
	return d.fromServer && (d.attempts == 0 || d.intervals == 0)
}

// errGivenUp is a task that asynq has retried, archived or returned to its queue before its worker
// was through with it.
var errGivenUp = errors.New("asynq has given the task up")

// enqueueCopy enqueues the task again, with all that it carries and what is left of its attempts,
// to be run after a while, and returns the copy's ID. A repeated call enqueues no second copy
// while the first one waits or runs.
func (d *delivery) enqueueCopy(after time.Duration) (string, error) {
	headers := d.headers()
	id := nextID(headers[originHeader], d.id)
	opts, err := d.taskOptions()
	if err != nil {
		return "", err
	}
	opts = append(opts, asynq.ProcessIn(after))
	err = d.send(id, headers, opts)
	if errors.Is(err, asynq.ErrTaskIDConflict) && !d.comes(id) {
		id = headers[originHeader] + "~" + rand.Text()[:8]
		err = d.send(id, headers, opts)
	}
	if err != nil && !errors.Is(err, asynq.ErrTaskIDConflict) {
		return "", err
	}
	return id, nil
}

// isRepeated reports whether the task is a copy, and there is another one of the original's ID
// that asynq will give to a worker. That one was enqueued while the ID was free, and runs for
// both. A task that is with a worker does not count: it may be the original itself, which asynq is
// about to remove.
func (d *delivery) isRepeated() bool {
	origin := d.task.Headers()[originHeader]
	if !d.fromServer || origin == "" || origin == d.id || d.isFollowUp() {
		return false
	}
	info, err := d.m.inspector.GetTaskInfo(d.queue, origin)
	return err == nil && followUp{info: info}.waits() && d.isLike(info)
}

// TaskID returns the ID under which a task was enqueued. It is that of asynq.GetTaskID, unless the
// middleware enqueued the task as a copy: of a task on its last attempt, or of one that was
// coalesced. Then it is the ID of the first of them. ctx is the task's.
func TaskID(ctx context.Context, task *asynq.Task) string {
	if id := task.Headers()[originHeader]; id != "" {
		return id
	}
	id, _ := asynq.GetTaskID(ctx)
	return id
}

// nextID returns the ID of the next copy of a task: "report", "report~1", "report~2".
func nextID(origin, id string) string {
	n := 0
	if copied, ok := strings.CutPrefix(id, origin+"~"); ok {
		n, _ = strconv.Atoi(copied) // or 0
	}
	return origin + "~" + strconv.Itoa(n+1)
}

// headers returns the headers of a copy.
func (d *delivery) headers() map[string]string {
	headers := map[string]string{}
	maps.Copy(headers, d.task.Headers())
	headers[originHeader] = TaskID(d.ctx, d.task)
	if d.m.busy == Coalesce && d.Started {
		headers[arrivedHeader] = "0" // older than all, as in arrived
	}
	return headers
}

// taskOptions returns what the task was enqueued with. Its lock of asynq.Unique is not among it:
// only the task itself can hold that.
func (d *delivery) taskOptions() ([]asynq.Option, error) {
	info, err := d.m.inspector.GetTaskInfo(d.queue, d.id)
	if errors.Is(err, asynq.ErrTaskNotFound) || errors.Is(err, asynq.ErrQueueNotFound) || err == nil && info.State != asynq.TaskStateActive {
		err = errGivenUp
	}
	if err != nil {
		return nil, fmt.Errorf("guardasynq: look up task %q: %w", d.id, err)
	}
	opts := []asynq.Option{asynq.Queue(d.queue), asynq.MaxRetry(d.attempts)}
	if info.Timeout > 0 {
		opts = append(opts, asynq.Timeout(info.Timeout))
	}
	if !info.Deadline.IsZero() {
		opts = append(opts, asynq.Deadline(info.Deadline))
	}
	if info.Retention > 0 {
		opts = append(opts, asynq.Retention(info.Retention))
	}
	if info.Group != "" {
		opts = append(opts, asynq.Group(info.Group))
	}
	return opts, nil
}

// send enqueues the same task under another ID.
func (d *delivery) send(id string, headers map[string]string, opts []asynq.Option) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.ctx), enqueueTimeout)
	defer cancel()
	task := asynq.NewTaskWithHeaders(d.task.Type(), d.task.Payload(), headers)
	if _, err := d.m.client.EnqueueContext(ctx, task, append(opts, asynq.TaskID(id))...); err != nil {
		return fmt.Errorf("guardasynq: enqueue task %q: %w", id, err)
	}
	return nil
}

// comes reports whether there is a task of that ID which asynq will give to a worker, or has given
// to one, and which is the same as this one. It can be another: the ID of a task is free again
// when a copy is in its place.
func (d *delivery) comes(id string) bool {
	info, err := d.m.inspector.GetTaskInfo(d.queue, id)
	return err == nil && followUp{info: info}.comes() && d.isLike(info)
}

// isLike reports whether a task is the same as this one but for its ID.
func (d *delivery) isLike(info *asynq.TaskInfo) bool {
	return info.Type == d.task.Type() && bytes.Equal(info.Payload, d.task.Payload())
}
