package history

import (
	"bytes"
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Pauses are the times for which processes did not run, by process.
type Pauses map[string][]Event

// Stalls finds them in the events.
func Stalls(events []Event) Pauses {
	p := Pauses{}
	for _, e := range events {
		if e.Kind == Stall || e.Kind == Starved {
			p[e.Process] = append(p[e.Process], e)
		}
	}
	return p
}

// Within returns for how long, between two instants, any of the processes did not run.
func (p Pauses) Within(from, to int64, processes ...string) (sum time.Duration) {
	var stalls, starved []Event
	for _, process := range processes {
		for _, e := range p[process] {
			if e.Kind == Stall {
				stalls = append(stalls, e)
			} else {
				starved = append(starved, e)
			}
		}
	}
	return max(covered(from, to, stalls), covered(from, to, starved))
}

// covered returns how much of the time between two instants the events cover. What is Starved may
// have been at any time in it.
func covered(from, to int64, all []Event) (sum time.Duration) {
	slices.SortFunc(all, func(a, b Event) int { return cmp.Compare(a.Call, b.Call) })
	for _, e := range all {
		begun, ended := max(from, e.Call), min(to, e.Return)
		if begun >= ended {
			continue
		}
		from = ended // which the next must not count again
		if e.Kind == Starved {
			ended = min(ended, begun+int64(e.Late))
		}
		sum += time.Duration(ended - begun)
	}
	return sum
}

// stallStep is how often a Watch looks, and a stall what lasts longer than shortestStall beyond
// that. A shorter step would itself take a tenth of a CPU from what is watched, in each process.
const (
	stallStep     = 5 * time.Millisecond
	shortestStall = 2 * time.Millisecond
)

// WatchStalls notes when the process does not run, until stop is called, which returns once it has
// ended. Two goroutines look, as a thread of the process can be kept waiting while another runs.
func (l *Log) WatchStalls() (stop func()) {
	ending := make(chan struct{})
	var watches sync.WaitGroup
	for range 2 {
		watches.Go(func() { l.watchStalls(ending) })
	}
	watches.Go(func() { l.watchThreads(ending) })
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

// sampleStep is how often watchThreads looks.
const sampleStep = 100 * time.Millisecond

// watchThreads notes when a thread of the process was ready to run and had to wait for a CPU, as
// the kernel counts it: other threads may have run meanwhile, and with them the goroutines that
// watch for stalls.
func (l *Log) watchThreads(ending chan struct{}) {
	last, at := threadDelays(), Now()
	for {
		select {
		case <-ending:
			return
		case <-time.After(sampleStep):
		}
		next, now := threadDelays(), Now()
		var most time.Duration
		for thread, delay := range next {
			most = max(most, delay-last[thread])
		}
		if most > shortestStall {
			l.End(l.Begin(Event{Kind: Starved, Call: at, Return: now, Late: most}))
		}
		last, at = next, now
	}
}

// threadDelays returns for how long each thread has waited for a CPU so far: the second number of
// schedstat, see sched-stats in the kernel's documentation. It is empty where the kernel does not
// count.
func threadDelays() map[string]time.Duration {
	delays := map[string]time.Duration{}
	files, _ := filepath.Glob("/proc/self/task/*/schedstat")
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // the thread has ended
		}
		if numbers := bytes.Fields(text); len(numbers) > 1 {
			ns, _ := strconv.ParseInt(string(numbers[1]), 10, 64)
			delays[name] = time.Duration(ns)
		}
	}
	return delays
}
