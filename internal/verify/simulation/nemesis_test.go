package simulation_test

import (
	"math/rand/v2"
	"time"
)

// A mix is the kinds of faults that a world has.
type mix string

const (
	// network loses no data: leases have to hold strictly.
	network mix = "network"
	// amnesia has network, and servers that are flushed or restart empty, at any moment. A lease
	// may be lost with them, so two workers can believe until the first one asks again, or its
	// deadline. Fences still grow, and no two claims may use the same.
	amnesia mix = "amnesia"
	// clocks has network, and server clocks that jump. A jump forward ends leases early, as
	// amnesia does. There is no amnesia on top: a counter that is lost and a clock that has
	// stepped back leave nothing to go by.
	clocks mix = "clocks"
)

var mixes = []mix{network, amnesia, clocks}

// nemesis makes things go wrong until all is to be calm.
func (w *world) nemesis() {
	rng := w.rng("nemesis")
	for {
		time.Sleep(upTo(rng, 300*time.Millisecond))
		if w.calm() {
			return
		}
		if w.pauses() && chance(rng, 0.5) {
			w.interrupt(rng)
			continue
		}
		d := upTo(rng, longestTTL/2)
		if chance(rng, 0.2) {
			d *= 4
		}
		fault := w.pick(rng)
		if fault == nil {
			p := w.processes[rng.IntN(len(w.processes))]
			w.trace.add("%s is cut off for %v", p.name, d)
			p.cutOff.set(time.Now().Add(d))
			continue
		}
		// up to a majority
		for _, i := range rng.Perm(len(w.servers))[:1+rng.IntN((len(w.servers)+1)/2)] {
			fault(w.servers[i], d)
		}
	}
}

// pick picks what befalls servers, or nil for something that befalls a process.
func (w *world) pick(rng *rand.Rand) func(*server, time.Duration) {
	if w.mix != network && chance(rng, 0.4) {
		faults := map[mix][]func(*server, time.Duration){
			amnesia: {w.flush, w.restart, w.lieInWait},
			clocks:  {w.jump, w.jumpBack},
		}[w.mix]
		return faults[rng.IntN(len(faults))]
	}
	return []func(*server, time.Duration){w.freeze, w.leave, w.forgetScripts, nil}[rng.IntN(4)]
}

func (w *world) freeze(s *server, d time.Duration) {
	w.trace.add("%s is frozen for %v", s.name, d)
	s.frozen.set(time.Now().Add(d))
}

func (w *world) leave(s *server, d time.Duration) {
	w.trace.add("%s is away for %v", s.name, d)
	s.leave(d)
}

func (w *world) forgetScripts(s *server, _ time.Duration) {
	w.trace.add("%s forgets its scripts", s.name)
	s.forgetScripts()
}

func (w *world) flush(s *server, _ time.Duration) {
	w.trace.add("%s is flushed", s.name)
	s.flush()
	w.lastLoss.set(time.Now())
}

// lieInWait has the server flushed at the worst moment, if that comes soon: see server.forget.
func (w *world) lieInWait(s *server, d time.Duration) {
	w.trace.add("%s is to be flushed while its fences are ahead of its clock, within %v", s.name, d)
	s.forgets.set(time.Now().Add(d))
}

func (w *world) restart(s *server, d time.Duration) {
	w.trace.add("%s restarts empty, in %v", s.name, d)
	s.restart(d)
	w.lastLoss.set(time.Now())
}

func (w *world) jump(s *server, d time.Duration) {
	w.trace.add("the clock of %s jumps by %v", s.name, d)
	s.jump(d)
	w.lastLoss.set(time.Now())
}

// jumpBack loses nothing: leases last longer.
func (w *world) jumpBack(s *server, d time.Duration) {
	w.trace.add("the clock of %s jumps back by %v", s.name, d)
	s.jump(-d)
	w.setBack += d
}
