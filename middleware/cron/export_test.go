package guardcron

import "time"

// SetClock has the clock of the Jobs be ahead of the real one, or behind.
func SetClock(j *Jobs, ahead time.Duration) { j.ahead.Store(int64(ahead)) }

// SetProcess names the process of the Jobs.
func SetProcess(j *Jobs, who string) { j.who = who }
