package simulation_test

import (
	"math/rand/v2"
	"reflect"
	"time"
	"unsafe"
)

// longestStop is for how long a process is stopped at most.
const longestStop = 3 * longestTTL

// pauses reports whether processes are stopped, and hosts suspended.
func (w *world) pauses() bool { return w.cast == pauses || w.nodes != nil && w.seed%4 < 2 }

// interrupt stops a process, or suspends the hosts of all.
func (w *world) interrupt(rng *rand.Rand) {
	if chance(rng, 0.5) {
		w.suspend(20*time.Millisecond + upTo(rng, 2*longestTTL))
		return
	}
	p := w.processes[rng.IntN(len(w.processes))]
	d := longestTTL + upTo(rng, longestStop-longestTTL)
	w.trace.add("%s is stopped for %v", p.name, d)
	// it may be stopped already, for longer
	p.stopped.set(later(time.Now().Add(d), p.stopped.get()))
}

// step returns when the process goes on. It stands for SIGSTOP, as far as a bubble can have it,
// for a part of the process: a worker does not go on to its next step, and sends and receives
// nothing. Timers go on, so contexts end as those of a real process do when it goes on.
func (p *process) step(who string) {
	for left := time.Until(p.stopped.get()); left > 0; left = time.Until(p.stopped.get()) {
		time.Sleep(left + upTo(p.world.rng(who+" goes on "+time.Now().String()), 100*time.Microsecond))
	}
}

// A suspension is a time that passed for the servers alone.
type suspension struct {
	at time.Time
	d  time.Duration
}

// suspend suspends the hosts of all processes, and no server: CLOCK_BOOTTIME moves by d, as the
// servers' clocks do, and CLOCK_MONOTONIC, the bubble's, does not. A process that is notified of
// it has lost its leases. Nothing else is lost.
func (w *world) suspend(d time.Duration) {
	w.trace.add("the hosts are suspended for %v", d)
	for _, s := range w.servers {
		s.jump(d)
	}
	for _, n := range w.nodes {
		n.suspend(d)
	}
	w.asleep.Add(int64(d))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.suspensions = append(w.suspensions, suspension{time.Now(), d})
}

// sleptSince returns for how long the hosts were suspended since an instant, or at it.
func (w *world) sleptSince(at time.Time) (d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.suspensions {
		if !s.at.Before(at) {
			d += s.d
		}
	}
	return d
}

// reportSuspensions has the process' Guard ask the world for how long its host was suspended. A
// Guard has no public clock, so this replaces the function that asks the kernel.
func (p *process) reportSuspensions() {
	asleep := reflect.ValueOf(p.guard).Elem().FieldByName("clock").Elem().FieldByName("Suspension")
	answer := reflect.MakeFunc(asleep.Type(), func([]reflect.Value) []reflect.Value {
		return []reflect.Value{reflect.ValueOf(time.Duration(p.world.asleep.Load()))}
	})
	reflect.NewAt(asleep.Type(), unsafe.Pointer(asleep.UnsafeAddr())).Elem().Set(answer)
}

// outslept reports whether the hosts were suspended for longer than the margin since the belief
// was last proven, so that it is not valid.
func (b *belief) outslept(w *world) bool {
	return w.sleptSince(b.proven.get()) >= b.TTL/100+20*time.Millisecond
}
