package guard

import (
	"context"
	"time"
)

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

// NewCall returns the context with which g calls its store for a caller, and what ends it.
func NewCall(g *Guard, ctx context.Context, timeout, grace time.Duration) (call context.Context, end func()) {
	c := g.newCall(ctx, g.now(), timeout, grace)
	return c, c.end
}
