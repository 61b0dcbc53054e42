package guardcron

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// An Outcome is what became of a tick. The outcomes are few and fixed, fit for a metric.
type Outcome string

// The outcomes.
const (
	// Running means that the run has begun and has not ended: it goes on, or its process has died.
	Running Outcome = "running"
	// Ran means that the job returned nil.
	Ran Outcome = "ran"
	// Failed means that the job returned an error.
	Failed Outcome = "failed"
	// Panicked means that the job panicked, or ended its goroutine.
	Panicked Outcome = "panicked"
	// Lost means that the job lost its lease while it ran, whatever it returned.
	Lost Outcome = "lost"
	// Skipped means that the tick was left out: the job still ran for another tick, or was paused.
	Skipped Outcome = "skipped"
	// Missed means that no process ran the tick in time.
	Missed Outcome = "missed"
)

// A Record is what is known of a tick of a job, or of a run by hand.
type Record struct {
	Job     string    `json:"-"`
	Tick    time.Time `json:"tick,omitzero"` // in UTC; zero for a run by hand
	Outcome Outcome   `json:"outcome"`
	Who     string    `json:"who"`             // the process: its host and its number
	Fence   uint64    `json:"fence,omitempty"` // what guard.Fence says in the job
	Start   time.Time `json:"start,omitzero"`
	End     time.Time `json:"end,omitzero"`
	Reason  string    `json:"reason,omitempty"` // the error, or why it was skipped or missed
}

// same reports whether two records are of one run.
func (r Record) same(o Record) bool {
	return r.Tick.Equal(o.Tick) && r.Fence == o.Fence && r.Start.Equal(o.Start)
}

// Records returns what is known of the newest ticks of a job, at most n, the newest first: also of
// a job that is not among these Jobs. It asks the store.
func (j *Jobs) Records(ctx context.Context, name string, n int) ([]Record, error) {
	entries, err := j.ledger.Entries(ctx, ledgerName(name), min(2*max(n, 1), driver.MaxEntries))
	if err != nil {
		return nil, fmt.Errorf("guardcron: records of job %q: %w", name, err)
	}
	var records []Record
	for _, e := range entries {
		r := Record{Job: name}
		if json.Unmarshal(e.Record, &r) != nil || r.Outcome == "" {
			continue // somebody else's
		}
		at := slices.IndexFunc(records, r.same)
		switch {
		case at < 0:
			records = append(records, r)
		case records[at].Outcome == Running: // the beginning of what has ended comes after its end
			records[at] = r
		}
	}
	return records[:min(len(records), max(n, 0))], nil
}

// record writes down what became of a tick, and tells those who want to know. It does not fail:
// what cannot be written down is told them all the same. skipped is the word for why it did not
// run, if it did not.
func (b *job) record(r Record, skipped string) {
	r.Job = b.name
	if r.Outcome != Running {
		b.report(r, "", skipped)
		for _, f := range b.observed {
			contained(func() { f(r) })
		}
	}
	if r.Outcome == Missed {
		for _, f := range b.missed {
			contained(func() { f(r) })
		}
	}
	const longest = 4 << 10
	if len(r.Reason) > longest {
		r.Reason = r.Reason[:longest]
	}
	text, err := json.Marshal(r)
	if err != nil {
		return // which cannot be
	}
	at := r.Start
	if r.Outcome != Running && !r.End.IsZero() {
		at = r.End
	}
	ctx := context.WithoutCancel(b.jobs.ctx)
	_ = b.jobs.ledger.Append(ctx, ledgerName(b.name), driver.Entry{At: max(at.UnixMilli(), 0), Record: text}, 2*b.keep)
}

// Outcomes that are told to hooks alone.
const (
	elsewhere   Outcome = "elsewhere"   // another process has seen to it
	unavailable Outcome = "unavailable" // the store could not be asked here
)

// Why a tick did not run here, in a word.
const (
	skippedDone   = "done"
	skippedMissed = "missed"
	skippedPaused = "paused"
)

// report tells the Guard's hooks what became of a tick. label is that of the run that was found
// instead.
func (b *job) report(r Record, label, skipped string) {
	b.jobs.guard.Adapter().Report(context.WithoutCancel(b.jobs.ctx), guard.Outcome{
		Adapter: "cron", Result: string(r.Outcome), Skipped: skipped, Name: b.name, Start: r.Start, Duration: r.End.Sub(r.Start), Fence: r.Fence, Label: label,
	}, b.lease...)
}

// contained calls f, and ignores that it panics: observers report and decide nothing.
func contained(f func()) {
	defer func() { _ = recover() }()
	f()
}

func ledgerName(job string) string { return "cron:" + job }
