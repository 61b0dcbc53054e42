package guardasynq

import (
	"errors"
	"fmt"
	"time"

	"github.com/seed-1795987d/onerun/guard"
)

// keepResult makes what the handler has written to its ResultWriter the record of the done marker.
func (d *delivery) keepResult() {
	lease := d.once
	if lease == nil || !d.known {
		return
	}
	info, err := d.m.inspector.GetTaskInfo(d.queue, d.id)
	if err == nil && len(info.Result) > 0 {
		err = lease.SetRecord(info.Result)
	}
	if err != nil {
		d.m.log.Error("guardasynq: the result of a task cannot be kept for those that come later", "type", d.task.Type(), "id", d.id, "queue", d.queue, "error", err)
	}
}

// giveResult ends a task whose work is done, with the result of the run that has done it.
func (d *delivery) giveResult(err error) (tell error, settled bool) {
	var done *guard.DoneError
	// the writer is nil if an outer handler has replaced the task
	if errors.As(err, &done) && len(done.Record) > 0 && d.known && d.task.ResultWriter() != nil {
		if _, err := d.task.ResultWriter().Write(done.Record); err != nil {
			err = fmt.Errorf("guardasynq: write the result of task %q, which was done before: %w", d.id, err)
			d.end(ResultUnavailable, err)
			return d.postpone(err)
		}
	}
	if d.repeats != "" {
		d.skip = "done" // hooks do not learn it from an auxiliary lease
	}
	d.end(ResultDone, nil)
	d.handOff(time.Now()) // if it was brought, it brings the next one
	return nil, true
}
