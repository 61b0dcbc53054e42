package guardscheduler

import (
	"context"
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
	"github.com/seed-1795987d/onerun/middleware/internal/ticks"
)

// An entry is a task with a schedule.
type entry struct {
	spec     string
	schedule cron.Schedule
	id       string      // the same in all processes, whatever their version
	task     *asynq.Task // the caller's
	opts     []asynq.Option
	since    time.Time       // when it was registered
	floor    time.Time       // it has no ticks up to then, if it is not zero
	marks    ticks.Marks     // set by runner.add, as the next two
	ctx      context.Context //nolint:containedctx // ends when the entry is removed
	stop     context.CancelFunc

	// Of the goroutine that looks after the entry:
	last      time.Time       // ticks up to it have been handled
	remaining ticks.Remaining // the schedule, less what the marks leave out
	loaded    bool            // both were read from the store
	reported  time.Time       // a missed tick to which the mark must still be moved, or zero
	trouble   trouble
}

func newEntry(spec string, task *asynq.Task, opts []asynq.Option, now time.Time) (*entry, error) {
	if task == nil {
		return nil, refused.Setting("task", nil, "must not be nil")
	}
	if strings.TrimSpace(task.Type()) == "" {
		return nil, refused.Setting("task", fmt.Sprintf("%q", task.Type()), "must have a type")
	}
	schedule, err := parse(spec)
	if err != nil {
		return nil, refused.Setting("cronspec", fmt.Sprintf("%q", spec), fmt.Sprintf("cannot be parsed: %v", err))
	}
	return &entry{spec: spec, schedule: schedule, id: entryID(task, opts), task: task, opts: slices.Clone(opts), since: now}, nil
}

// entryID returns 80 bits of a hash over what identifies an entry. With 32 bits, two of ten
// thousand payloads of one type would share an ID in one of a hundred cases, and one of those
// tasks would never be enqueued.
func entryID(task *asynq.Task, opts []asynq.Option) string {
	parts := []string{task.Type(), string(task.Payload())}
	for _, opt := range opts {
		if o, ok := opt.(tickOption); ok {
			parts = append(parts, o.value)
		}
	}
	sum := keys.Hash(parts...)
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:10]))
}

// idAndSpec returns what identifies the marks of the entry.
func (e *entry) idAndSpec() string { return e.id + " " + e.spec }

// tickNames returns the ID of a tick's task, and the key of its lease. If a key cannot hold the
// type, or hardly could, the hash alone identifies the task.
func (e *entry) tickNames(tick time.Time) (taskID, key string) {
	kind := e.task.Type()
	rest := "@" + tick.UTC().Format(time.RFC3339) + "~" + e.id
	taskID = kind + rest
	if len(kind) > 256 || strings.ContainsAny(kind, "{}\x00") {
		kind = ""
	}
	return taskID, "asynq-tick:" + kind + rest
}

// conflict returns an error if e and o enqueue different tasks under one name.
func (e *entry) conflict(o *entry) error {
	if e.id != o.id || slices.Equal(optionTexts(e.opts), optionTexts(o.opts)) && maps.Equal(e.task.Headers(), o.task.Headers()) {
		return nil
	}
	return refused.Setting("task", fmt.Sprintf("%q", e.task.Type()), fmt.Sprintf(
		"has the type and payload of another entry, and other options or headers: of ticks that %q and %q share only one would be enqueued; TickName tells them apart",
		e.spec, o.spec))
}

// optionTexts returns the options as asynq compares them.
func optionTexts(opts []asynq.Option) []string {
	var texts []string
	for _, opt := range opts {
		texts = append(texts, opt.String())
	}
	slices.Sort(texts)
	return texts
}
