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
)

// originHeader is the header of a copy that names the original task. FromTaskID goes by it.
const originHeader = "Onerun-Task-Id"

// enqueueTimeout bounds how long it may take to enqueue a task.
const enqueueTimeout = 10 * time.Second

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
