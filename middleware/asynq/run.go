package guardasynq

import (
	"context"

	"github.com/hibiken/asynq"
)

type runKey struct{}

// Key returns the key of the task under which a handler runs, as the KeyFunc found it, or "" if
// ctx is not that of a handler behind the middleware. The lease and its fence are in
// guard.FromContext and guard.Fence.
func Key(ctx context.Context) string {
	if d, ok := ctx.Value(runKey{}).(*delivery); ok {
		return d.key
	}
	return ""
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
