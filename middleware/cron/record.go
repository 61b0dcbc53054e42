package guardcron

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// A Result is how a tick or a run ended. The results are few and fixed, so they can be a label
// of a metric.
type Result string

// The results.
const (
	// Running means that the run has begun and has not ended. A run is on record as Running after a
	// second. If its process dies, it is Lost as soon as another process notices.
	Running Result = "running"
	// Ran means that the job returned nil.
	Ran Result = "ran"
	// Failed means that the job returned an error, panicked, or ended its goroutine.
	Failed Result = "failed"
	// Lost means that the job lost its lease while it ran, whatever it returned, or that its
	// process died in the run.
	Lost Result = "lost"
	// Skipped means that the tick was left out: the job was running for another tick, or paused.
	// It also means that the job returned guard.ErrDone: it had nothing to do.
	Skipped Result = "skipped"
	// Missed means that no process ran the tick in time.
	Missed Result = "missed"
)

// Results that are not on record.
const (
	elsewhere Result = "elsewhere" // another process has handled it: only hooks are notified
	// Unavailable means that this process could not ask the store about the tick until the start
	// deadline. Another process may have run it. This one asks again until the store answers, and
	// then the tick is Missed, or run if it is to be caught up with, or was handled elsewhere.
	// Observers receive it, but it is not on record.
	Unavailable Result = "unavailable"
)

// A Record is the outcome of a run of a job, for a tick or by hand, or of one or more ticks for
// which it did not run.
type Record struct {
	Job  string    `json:"-"`
	Tick time.Time `json:"tick,omitzero"` // in UTC; zero for a run by hand
	// Until is the last tick if the record is of all ticks from Tick to Until, which are Missed or
	// Skipped together, and Ticks is how many they are. Both are zero otherwise. Of more than
	// 100,000 ticks, Ticks counts only a part.
	Until time.Time `json:"until,omitzero"`
	Ticks int       `json:"ticks,omitempty"`

	Result Result    `json:"result"`
	Who    string    `json:"who"`             // the process: its label (guard.WithLabel)
	Fence  uint64    `json:"fence,omitempty"` // what guard.Fence says in the job
	Start  time.Time `json:"start,omitzero"`
	End    time.Time `json:"end,omitzero"`
	Reason string    `json:"reason,omitempty"` // the error, or why it was skipped or missed
}

// Records returns the records of the newest ticks of a job and of its newest runs by hand, at most
// n, the newest first. A run by hand is sorted by its start. Records asks the store.
func (c *Control) Records(ctx context.Context, name string, n int) ([]Record, error) {
	records, err := c.RecordsOf(ctx, []string{name}, n)
	if err != nil {
		return nil, err
	}
	return records[0], nil
}

// RecordsOf is Records of several jobs. It asks the store once for up to 500 of them.
func (c *Control) RecordsOf(ctx context.Context, names []string, n int) ([][]Record, error) {
	logs := make([]string, 0, 2*len(names))
	for _, name := range names {
		logs = append(logs, ledgerName(name), byHandName(name))
	}
	read, err := c.ledger.EntriesOf(ctx, logs, min(2*max(n, 1), driver.MaxEntries))
	if err != nil {
		return nil, fmt.Errorf("guardcron: records of %s: %w", jobsText(names), err)
	}
	all := make([][]Record, len(names))
	for i, name := range names {
		all[i] = newest(name, append(parse(read[2*i]), parse(read[2*i+1])...), n)
	}
	return all, nil
}

// jobsText names one job, or counts several.
func jobsText(names []string) string {
	if len(names) == 1 {
		return fmt.Sprintf("job %q", names[0])
	}
	return fmt.Sprintf("%d jobs", len(names))
}

// newest returns the n newest records of a job from its logs.
func newest(name string, logs view, n int) []Record {
	var records []Record
	for _, e := range logs {
		e.Job = name
		records = append(records, e.Record)
	}
	slices.SortStableFunc(records, func(a, b Record) int { return cmp.Or(b.at().Compare(a.at()), b.Start.Compare(a.Start)) })
	return records[:min(len(records), max(n, 0))]
}
