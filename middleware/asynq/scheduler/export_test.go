package guardscheduler

import (
	"time"

	"github.com/hibiken/asynq"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/internal/ticks"
)

// MaxTicks is for tests.
const MaxTicks = ticks.MaxIn

// TicksIn parses a spec and returns its ticks after from, up to and including to.
func TicksIn(spec string, from, to time.Time) ([]time.Time, error) {
	s, err := parse(spec)
	if err != nil {
		return nil, err
	}
	return ticks.In(s, from, to), nil
}

// A Due is a due, for tests.
type Due struct {
	Run         []time.Time
	Missed      int
	First, Last time.Time
}

// DueTicks parses a spec and calls dueTicks.
func DueTicks(spec string, last, now time.Time, deadline time.Duration, c int) (Due, error) {
	s, err := parse(spec)
	if err != nil {
		return Due{}, err
	}
	d := dueTicks(s, last, now, deadline, c)
	return Due{Run: d.run, Missed: d.missed, First: d.first, Last: d.last}, nil
}

// ShownSpec returns the spec that asynq is given.
func ShownSpec(spec string) (string, error) {
	s, err := parse(spec)
	if err != nil {
		return "", err
	}
	return shownSpec(spec, s), nil
}

// TickNames returns the ID of a tick's task, and the key of its lease.
func TickNames(task *asynq.Task, tick time.Time, opts ...asynq.Option) (taskID, key string) {
	e, err := newEntry("@daily", task, opts, tick)
	if err != nil {
		return err.Error(), ""
	}
	return e.tickNames(tick)
}

// SetClock has the clock of a Scheduler be ahead of the real one, or behind.
func SetClock(s *Scheduler, ahead time.Duration) {
	s.runner.now = func() time.Time { return wallClock().Add(ahead) }
}

// A Replica is a scheduler without asynq, whose clock is off: for virtual time.
type Replica struct{ runner *runner }

// NewReplica returns a replica that enqueues by f.
func NewReplica(g *guard.Guard, off time.Duration, opts *asynq.SchedulerOpts, client enqueuer, more ...Option) (*Replica, error) {
	s := newSettings(g, more)
	if s.Err != nil {
		return nil, s.Err
	}
	r := newRunner(g, s, client, opts)
	r.now = func() time.Time { return wallClock().Add(off) }
	return &Replica{r}, nil
}

// Start begins with an entry.
func (r *Replica) Start(spec string, task *asynq.Task) error {
	_, err := r.start(spec, task, time.Time{})
	return err
}

// Enable begins with an entry whose ticks up to floor are none, as a Manager does. It returns what
// ends that.
func (r *Replica) Enable(spec string, task *asynq.Task, floor time.Time) (disable func(), err error) {
	return r.start(spec, task, floor)
}

func (r *Replica) start(spec string, task *asynq.Task, floor time.Time) (end func(), err error) {
	e, err := newEntry(spec, task, nil, r.runner.now())
	if err != nil {
		return nil, err
	}
	e.floor = floor
	r.runner.add(e)
	r.runner.start(e)
	return func() { r.runner.remove(e) }, nil
}

// Stop ends it, and waits for what is under way.
func (r *Replica) Stop() {
	r.runner.cancel()
	r.runner.wg.Wait()
}
