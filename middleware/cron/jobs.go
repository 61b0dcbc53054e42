package guardcron

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/internal/refused"
	"github.com/seed-1795987d/onerun/middleware/internal/ticks"
)

// Jobs are entries of a Cron. Each tick of them is run once, in one of all processes that share a
// store. Jobs is safe for concurrent use.
type Jobs struct {
	*Control
	cron *cron.Cron
	set  settings

	ctx  context.Context // of all runs: cron passes none
	stop context.CancelCauseFunc

	open context.Context // ends when Close begins
	shut context.CancelFunc

	watch sync.Once // starts watchClock

	warnOfZones sync.Once // reports that processes are in two time zones

	mu      sync.Mutex
	jobs    map[string]*job
	running int
	idle    chan struct{} // closed when nothing runs any more, after Close has begun
}

// New returns Jobs that the Cron runs. The Cron is started and stopped by its own methods. The
// options apply to all jobs; options of a single job override them. A setting that cannot work is
// a *guard.SettingError. The Guard needs guard.WithNamespace or guard.WithoutNamespace. The
// backend must be a driver.Ledger, as all backends of this module are. New does not ask the
// store.
//
// At the end, stop the Cron, call Close, and then close the Guard.
func New(g *guard.Guard, c *cron.Cron, opts ...Option) (*Jobs, error) {
	var l refused.List
	control, err := NewControl(g)
	l.Err = err
	if c == nil {
		l.Refuse("cron", nil, "must not be nil")
	}
	s := settings{deadline: startDeadline, history: keptRuns}
	refused.Apply(&s.List, &s, opts)
	l.Err = errors.Join(l.Err, s.Err)
	if control != nil {
		l.Err = errors.Join(l.Err, g.Adapter().Check(unused, s.lease...), checkLabel(g, s.lease))
	}
	if l.Err != nil {
		return nil, l.Err
	}
	j := &Jobs{
		Control: control, cron: c, set: s, jobs: map[string]*job{}, idle: make(chan struct{}),
	}
	j.open, j.shut = context.WithCancel(context.Background())
	j.ctx, j.stop = context.WithCancelCause(context.Background())
	return j, nil
}

// AddFunc adds a job, as cron.AddFunc does, under a name. The name identifies the job in all
// processes. It must not be that of another job, and must stay the same when the program changes.
// f is called once for each tick of the spec, in one of the processes. Its context ends when the
// lease of the run is lost (the cause is guard.ErrLost) and when Close ends the run
// (guard.ErrClosed). A panic of f propagates to the Cron. If f finds nothing to do, it returns
// guard.ErrDone, or an error that wraps it, as guard.Guard.Do does: the run is recorded as Skipped,
// and not run again.
//
// A spec that cannot be parsed or never fires, a bad name, and options that cannot work or do not
// fit the schedule are errors that name the job.
func (j *Jobs) AddFunc(name, spec string, f func(ctx context.Context) error, opts ...Option) (cron.EntryID, error) {
	schedule, err := j.parse(spec)
	if err != nil {
		return 0, fmt.Errorf("guardcron: job %q: %w", name, refused.Setting("spec", fmt.Sprintf("%q", spec), err.Error()))
	}
	return j.schedule(name, spec, schedule, f, opts)
}

// Schedule is AddFunc with a schedule instead of a spec. The ticks of the schedule must be the same
// in all processes. A cron.ConstantDelaySchedule, such as "@every 5m", counts from the start of
// each process. It is replaced by one whose ticks are the multiples of the delay since 1970-01-01
// 00:00 UTC. The job looks for missed ticks when cron.Entry.Schedule.Next is first called, which
// cron does when it starts.
func (j *Jobs) Schedule(name string, schedule cron.Schedule, f func(ctx context.Context) error, opts ...Option) (cron.EntryID, error) {
	return j.schedule(name, "", schedule, f, opts)
}

func (j *Jobs) schedule(name, spec string, schedule cron.Schedule, f func(ctx context.Context) error, opts []Option) (cron.EntryID, error) {
	job, err := j.newJob(name, spec, schedule, f, opts)
	if err != nil {
		return 0, fmt.Errorf("guardcron: job %q: %w", name, err)
	}
	if err := j.add(job); err != nil {
		return 0, err
	}
	id := j.cron.Schedule(job, job)
	j.mu.Lock()
	job.entry = id
	removed := j.jobs[name] != job
	j.mu.Unlock()
	if removed { // Remove did not know the entry yet
		j.cron.Remove(id)
	}
	return id, nil
}

// add makes a job known by its name.
func (j *Jobs) add(b *job) error {
	_, err := j.find(b.name) // it forgets a job whose entry was removed from the Cron
	taken := err == nil
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.open.Err() != nil:
		return fmt.Errorf("guardcron: job %q: %w", b.name, &guard.ClosedError{Key: b.name})
	case taken || j.jobs[b.name] != nil:
		return fmt.Errorf("guardcron: job %q: %w", b.name, refused.Setting("name", fmt.Sprintf("%q", b.name), "is that of another job"))
	}
	j.jobs[b.name] = b
	return nil
}

// find returns the job of that name. A job whose entry was removed from the Cron is forgotten.
func (j *Jobs) find(name string) (*job, error) {
	j.mu.Lock()
	b := j.jobs[name]
	var entry cron.EntryID
	if b != nil {
		entry = b.entry
	}
	j.mu.Unlock()
	// The Cron answers from its loop, which may be waiting for j.mu.
	if entry != 0 && !j.cron.Entry(entry).Valid() {
		j.forget(b)
		b = nil
	}
	if b == nil {
		return nil, fmt.Errorf("guardcron: there is no job %q", name)
	}
	return b, nil
}

// forget makes the name free, and ends the waits of the job. It returns the job's entry in the
// Cron, or 0 if it has none, or not yet.
func (j *Jobs) forget(b *job) cron.EntryID {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.jobs[b.name] == b {
		delete(j.jobs, b.name)
	}
	b.leave()
	return b.entry
}

// Remove removes a job and its entry in the Cron, in this process. A run that has begun continues.
// The name can be used again at once. The records stay. It is an error if there is no such job.
//
// Removing the entry by cron.Remove has the same effect, but what the job waits for at that moment
// may still run.
func (j *Jobs) Remove(name string) error {
	b, err := j.find(name)
	if err != nil {
		return err
	}
	if entry := j.forget(b); entry != 0 {
		j.cron.Remove(entry)
	}
	return nil
}

// parse makes the Cron parse a spec, in its location and by its parser, which it does not export.
func (j *Jobs) parse(spec string) (schedule cron.Schedule, err error) {
	defer func() {
		if recover() != nil { // the parser panics on a time zone with nothing behind it
			err = errors.New("there is no schedule in it")
		}
	}()
	id, err := j.cron.AddJob(spec, cron.FuncJob(func() {}))
	if err != nil {
		return nil, err
	}
	defer j.cron.Remove(id)
	return ticks.Align(j.cron.Entry(id).Schedule), nil
}

// inBackground runs f, for which Close waits. It returns false if Jobs are closed.
func (j *Jobs) inBackground(f func()) bool {
	if !j.begin() {
		return false
	}
	go func() {
		defer j.end()
		f()
	}()
	return true
}

// begin counts a run. It is false when Jobs are closed.
func (j *Jobs) begin() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.open.Err() != nil {
		return false
	}
	j.running++
	return true
}

func (j *Jobs) end() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.running--; j.running == 0 && j.open.Err() != nil {
		close(j.idle)
	}
}

// Close starts no more runs. It waits for the runs that have begun, for as long as ctx allows. Then
// it ends their contexts, with guard.ErrClosed as the cause, and returns: its error wraps that of
// ctx, and says how many runs have not returned, if any. Their leases are renewed until they do.
// Whatever waits for a tick or a job that runs elsewhere leaves at once. Close can be called
// several times.
func (j *Jobs) Close(ctx context.Context) error {
	j.mu.Lock()
	if j.open.Err() == nil && j.running == 0 {
		close(j.idle)
	}
	j.shut()
	runs := j.running > 0
	j.mu.Unlock()
	defer j.stop(errClosed)
	if !runs {
		return nil
	}
	select {
	case <-j.idle:
		return nil
	case <-ctx.Done():
	}
	j.stop(errClosed)
	// Runs that heed their context return in a moment, and release their leases.
	select {
	case <-j.idle:
		return fmt.Errorf("guardcron: runs were ended: %w", ctx.Err())
	case <-time.After(closeGrace):
		j.mu.Lock()
		defer j.mu.Unlock()
		return fmt.Errorf("guardcron: runs were ended, and %d have not returned: %w", j.running, ctx.Err())
	}
}

// closeGrace is how much longer than its context Close waits for runs whose contexts it has ended.
const closeGrace = 100 * time.Millisecond

var errClosed = &guard.ClosedError{Key: "guardcron.Jobs"}
