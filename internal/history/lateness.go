package history

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// A Lateness is by how much something came after the moment at which it should have. Net is without the times for which its process did not run.
type Lateness struct{ Gross, Net time.Duration }

// Late returns by how much contexts ended after the last moment at which the contract lets them: of all beliefs that ended as time was up, and of any
// that lasted longer than that.
func Late(events []Event) (all []Lateness) {
	stalls := Stalls(events)
	for _, e := range Beliefs(events) {
		if e.over() && e.Deadline > 0 && (e.Reason == "expired" || e.Return > e.Deadline) {
			all = append(all, stalls.after(e.Process, e.Deadline, e.Return))
		}
	}
	return all
}

// Overruns returns by how much attempts returned after the end of their contexts, if they did.
func Overruns(events []Event) (all []Lateness) {
	stalls := Stalls(events)
	for _, e := range events {
		if e.Kind == Attempt && e.over() && e.Deadline > 0 && e.Return > e.Deadline {
			all = append(all, stalls.after(e.Process, e.Deadline, e.Return))
		}
	}
	return all
}

// Pauses are the times for which processes did not run, by process.
type Pauses map[string][]Event

// Stalls finds them in the events.
func Stalls(events []Event) Pauses {
	p := Pauses{}
	for _, e := range events {
		if e.Kind == Stall {
			p[e.Process] = append(p[e.Process], e)
		}
	}
	return p
}

// Within returns for how long, between two instants, any of the processes did not run.
func (p Pauses) Within(from, to int64, processes ...string) (sum time.Duration) {
	var all []Event
	for _, process := range processes {
		all = append(all, p[process]...)
	}
	slices.SortFunc(all, func(a, b Event) int { return cmp.Compare(a.Call, b.Call) })
	for _, e := range all {
		if begun := max(from, e.Call); begun < min(to, e.Return) {
			sum += time.Duration(min(to, e.Return) - begun)
			from = e.Return // which the next must not count again
		}
	}
	return sum
}

func (p Pauses) after(process string, due, at int64) Lateness {
	gross := max(0, time.Duration(at-due))
	return Lateness{Gross: gross, Net: max(0, gross-p.Within(due, at, process))}
}

// stallStep is how often a Watch looks, and a stall what lasts longer than shortestStall beyond that.
const (
	stallStep     = time.Millisecond
	shortestStall = 2 * time.Millisecond
)

// WatchStalls notes when the process does not run, until stop is called, which returns once it has ended. Two goroutines look, as a thread
// of the process can be kept waiting while another runs.
func (l *Log) WatchStalls() (stop func()) {
	ending := make(chan struct{})
	var watches sync.WaitGroup
	for range 2 {
		watches.Go(func() { l.watchStalls(ending) })
	}
	return func() { close(ending); watches.Wait() }
}

func (l *Log) watchStalls(ending chan struct{}) {
	for {
		select {
		case <-ending:
			return
		default:
		}
		due := Now() + int64(stallStep)
		time.Sleep(stallStep) // how late this is is what is measured
		if now := Now(); now-due > int64(shortestStall) {
			e := l.Begin(Event{Kind: Stall, Call: due, Return: now})
			l.End(e)
		}
	}
}

// Percentile returns the value below which a part of all lies, of 0 to 1; 0 if there are none.
func Percentile(all []time.Duration, part float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(len(sorted)-1, int(part*float64(len(sorted))))]
}
