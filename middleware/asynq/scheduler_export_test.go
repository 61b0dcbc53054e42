package guardasynq

import (
	"time"

	"github.com/hibiken/asynq"

	"github.com/seed-1795987d/onerun/middleware/internal/ticks"
)

// MostTicks is for tests.
const MostTicks = ticks.Most

// TicksIn parses a spec and returns its ticks after from, up to and including to.
func TicksIn(spec string, from, to time.Time) ([]time.Time, error) {
	s, _, err := parseTicks(spec)
	if err != nil {
		return nil, err
	}
	return ticks.In(s, from, to), nil
}

// DueTicks parses a spec and returns what a firing at now enqueues, and up to where the ticks have
// then been seen to.
func DueTicks(spec string, last, now time.Time, catchUp time.Duration) (due []time.Time, seen time.Time, err error) {
	s, _, err := parseTicks(spec)
	if err != nil {
		return nil, last, err
	}
	due, seen = dueTicks(s, last, now, catchUp)
	return due, seen, nil
}

// FiringSpec returns the spec that asynq is given.
func FiringSpec(spec string) (string, error) {
	_, firing, err := parseTicks(spec)
	return firing, err
}

// TickNames returns the ID of a tick's task, and the key of its lease.
func TickNames(task *asynq.Task, tick time.Time, opts ...asynq.Option) (taskID, key string) {
	e, err := newTickEntry("@daily", task, opts, tick)
	if err != nil {
		return err.Error(), ""
	}
	return e.tickNames(tick)
}
