package guard

import "time"

// SetAsleep makes g believe that the host has been suspended for as long as asleep says.
func SetAsleep(g *Guard, asleep func() time.Duration) {
	g.asleep = func(bound) time.Duration { return asleep() }
}
