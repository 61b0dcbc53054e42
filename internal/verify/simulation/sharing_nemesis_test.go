package simulation_test

import (
	"context"
	"math/rand/v2"
	"time"
)

// disturb makes things go wrong in a world with a node, until all is to be calm.
func (w *world) disturb() {
	rng := w.rng("nemesis")
	for {
		time.Sleep(upTo(rng, 300*time.Millisecond))
		if w.calm() {
			return
		}
		d := upTo(rng, longestTTL/2)
		if chance(rng, 0.2) {
			d *= 4
		}
		p, n := w.processes[rng.IntN(len(w.processes))], w.nodes[0]
		if w.isQuorum() {
			n = w.nodes[rng.IntN(len(w.nodes))]
		}
		switch {
		case chance(rng, 0.15):
			p.crash()
		case w.pauses() && chance(rng, 0.4):
			w.interrupt(rng)
		case w.mix != network && chance(rng, 0.4):
			n.loseLeases(rng, d)
		default:
			[]func(){
				func() { n.freeze(d) },
				func() { n.leave(d) },
				func() {
					w.trace.add("%s is cut off for %v", p.name, d)
					p.cutOff.set(time.Now().Add(d))
				},
			}[rng.IntN(3)]()
		}
	}
}

// loseLeases is what befalls the node in worlds whose mix is not network.
func (n *node) loseLeases(rng *rand.Rand, d time.Duration) {
	switch {
	case n.world.mix == amnesia:
		n.restart(d)
	case chance(rng, 0.5):
		n.jump(d)
	default:
		n.jump(-d)
	}
}

// crash ends the process, and starts it again at once. What it holds, or waits for, stays in the
// store until its TTL has passed.
func (p *process) crash() {
	p.world.trace.add("%s crashes", p.name)
	p.mu.Lock()
	p.life.over.Store(true)
	p.ended.set(time.Now())
	crashed := p.guard
	p.open()
	p.mu.Unlock()
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_ = crashed.Close(ended) // its calls see ErrClosed, and the store sees nothing
}
