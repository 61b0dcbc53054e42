package guardasynq

import (
	"encoding/base32"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"github.com/robfig/cron/v3"

	"github.com/seed-1795987d/onerun/middleware/internal/keys"
	"github.com/seed-1795987d/onerun/middleware/internal/refused"
)

// A tickEntry is a task with a schedule.
type tickEntry struct {
	spec     string
	schedule cron.Schedule
	firing   string // the spec that asynq is given
	id       string // the same in all processes, whatever their version
	// handle is what asynq knows the task by. It is a copy, so that it belongs to this entry
	// alone: what fires is told the task, and not the entry.
	handle *asynq.Task
	task   *asynq.Task // the caller's
	opts   []asynq.Option
	last   time.Time // the tick up to which this process has seen to them
}

func newTickEntry(spec string, task *asynq.Task, opts []asynq.Option, now time.Time) (*tickEntry, error) {
	if task == nil {
		return nil, refused.Setting("task", nil, "must not be nil")
	}
	if strings.TrimSpace(task.Type()) == "" {
		return nil, refused.Setting("task", fmt.Sprintf("%q", task.Type()), "must have a type")
	}
	schedule, firing, err := parseTicks(spec)
	if err != nil {
		return nil, refused.Setting("cronspec", fmt.Sprintf("%q", spec), fmt.Sprintf("cannot be parsed: %v", err))
	}
	handle := *task
	return &tickEntry{
		spec:     spec,
		schedule: schedule,
		firing:   firing,
		id:       tickID(task, opts),
		handle:   &handle,
		task:     task,
		opts:     slices.Clone(opts),
		last:     now,
	}, nil
}

// tickID returns 80 bits of a hash over what an entry is known by. Ten thousand payloads of one
// type have the same 32 bits twice in one of a hundred cases, and one of those tasks would never
// be enqueued.
func tickID(task *asynq.Task, opts []asynq.Option) string {
	parts := []string{task.Type(), string(task.Payload())}
	for _, opt := range opts {
		if o, ok := opt.(tickOption); ok && o.kind == "TickName" {
			parts = append(parts, o.value)
		}
	}
	sum := keys.Hash(parts...)
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:10]))
}

// tickNames returns the ID of a tick's task, and the key of its lease. Types that a key cannot
// hold, or could hardly, are known by the hash alone.
func (e *tickEntry) tickNames(tick time.Time) (taskID, key string) {
	kind := e.task.Type()
	rest := "@" + tick.UTC().Format(time.RFC3339) + "~" + e.id
	taskID = kind + rest
	if len(kind) > 256 || strings.ContainsAny(kind, "{}\x00") {
		kind = ""
	}
	return taskID, "asynq-tick:" + kind + rest
}

// shownOpts returns the options that asynq is told. They go into its list of entries, and its
// manager tells one entry from another by a hash over all that it has been told, without anything
// between the parts: the last option makes that a different one for each entry.
func (e *tickEntry) shownOpts() []asynq.Option {
	return append(slices.Clone(e.opts), tickOption{kind: "Tick", value: e.spec + " " + e.id})
}

// conflict returns an error if e and o enqueue different tasks under one name.
func (e *tickEntry) conflict(o *tickEntry) error {
	if e.id != o.id || slices.Equal(tickOptions(e.opts), tickOptions(o.opts)) && maps.Equal(e.task.Headers(), o.task.Headers()) {
		return nil
	}
	return refused.Setting("task", fmt.Sprintf("%q", e.task.Type()), fmt.Sprintf(
		"has the type and payload of another entry, and other options or headers: of ticks that %q and %q share only one would be enqueued; TickName tells them apart",
		e.spec, o.spec))
}

// tickOptions returns the options as asynq compares them.
func tickOptions(opts []asynq.Option) []string {
	var texts []string
	for _, opt := range opts {
		texts = append(texts, opt.String())
	}
	slices.Sort(texts)
	return texts
}
