package guardcron

import (
	"time"

	"github.com/seed-1795987d/onerun/guard"
)

// SetClock has the clock of the Jobs be ahead of the real one, or behind.
func SetClock(j *Jobs, ahead time.Duration) { j.ahead.Store(int64(ahead)) }

// Clock returns by how much the clock of the Jobs is ahead.
func Clock(j *Jobs) time.Duration { return time.Duration(j.ahead.Load()) }

// SetProcess names the process of the Jobs.
func SetProcess(j *Jobs, who string) {
	j.set.lease = append(j.set.lease, guard.WithLabel(who))
}

// WithTickMemory sets for how long the store remembers that a tick was run.
func WithTickMemory(d time.Duration) Option { return func(s *settings) { s.memory = d } }
