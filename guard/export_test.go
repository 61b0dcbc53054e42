package guard

import "time"

// SetAsleep makes g believe that the host has been suspended for as long as asleep says.
func SetAsleep(g *Guard, asleep func() time.Duration) {
	g.asleep = func(bound) time.Duration { return asleep() }
}

// Lines returns for how many keys g knows who holds them or waits for them.
func Lines(g *Guard) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.lines)
}
