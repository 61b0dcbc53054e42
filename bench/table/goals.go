package main

import (
	"fmt"
	"strings"
)

const (
	ours  = "onerun"
	perOp = "ns/op"
)

var peers = []string{"redsync", "redislock", "rueidislock"}

// floors are the least that a library can do. The first one that was measured counts.
var floors = []string{"fenced-floor", "floor"}

// A goal is a figure that is to be reached.
type goal struct {
	work    string
	figure  string                                          // what is compared
	measure func(r *results, impl string) (measured, error) // for ours, or a floor
	limit   float64
	atLeast bool // the figure is to be at least the limit, and not at most
}

// A measured is a figure and what it was worked out from.
type measured struct {
	figure  float64
	from    string // ours and what it is set against
	against string
}

// reached reports whether m is as good as the goal, and by what part of the limit it is not.
func (g goal) reached(m measured) (ok bool, by float64) {
	if g.atLeast {
		return m.figure >= g.limit, 1 - m.figure/g.limit
	}
	return m.figure <= g.limit, m.figure/g.limit - 1
}

func (g goal) wanted() string {
	if g.atLeast {
		return "at least " + number(g.limit)
	}
	return "at most " + number(g.limit)
}

// goals are those of docs/performance.md.
var goals = []goal{
	{"uncontended, 1 caller, fences on", "time × raw", slower("Alone", "raw"), 1.1, false},
	{"", "time × fastest peer", slower("Alone", peers...), 1, false},
	{"64 callers, a key each", "× faster than the best peer", faster("Uncontended", "g=64", peers...), 2, true},
	{"", "time × the floor", over("Uncontended", "g=64", "fenced-floor"), 2, false},
	{"512 callers, a key each", "× faster than redislock", faster("Uncontended", "g=512", "redislock"), 5, true},
	{"", "× faster than redsync", faster("Uncontended", "g=512", "redsync"), 4, true},
	{"", "× faster than rueidislock", faster("Uncontended", "g=512", "rueidislock"), 3, true},
	{"", "× faster than pipelines of 256 by hand", faster("Uncontended", "g=512", "raw/g=512/pipeline=256"), 0.75, true},
	{"", "time × the floor", over("Uncontended", "g=512", "fenced-floor"), 2, false},
	{"allocations, uncontended, no hooks", "1 caller", value("Uncontended", "g=1", "allocs/op", "raw", "redsync", "redislock", "rueidislock"), 24, false},
	{"", "512 callers", value("Uncontended", "g=512", "allocs/op", "raw", "redsync", "redislock", "rueidislock"), 16, false},
	{"64 callers in one process, one key", "× faster than the best peer", faster("Contended", "g=64/clients=1", peers...), 20, true},
	{"64 callers over 4 clients, one key", "× faster than the best peer", faster("Contended", "g=64/clients=4", peers...), 2, true},
	{"", "commands a pair", value("Contended", "g=64/clients=4", "cmds/pair", peers...), 6, false},
	{"", "the least share of a process, of its fair one", value("Contended", "g=64/clients=4", "min-share", peers...), 0.25, true},
	{"from release to the other's acquire", "round trips, p50", value("HandOff", "clients=2", "p50-trips", peers...), 4, false},
	{"", "round trips, p99", value("HandOff", "clients=2", "p99-trips", peers...), 7, false},
	{"a waiter while it waits", "commands in half a TTL", value("Waiters", "waiters=1", "cmds/half-ttl/waiter", peers...), 1, false},
	{"10,000 held leases, TTL 10 s", "goroutines beside those for 1", value("Held", "keys=10000", "goroutines", peers...), 0, false},
	{"", "heap of each, B", value("Held", "keys=10000", "heap-B/key", peers...), 1024, false},
	{"", "pipelines for 100 renewals", value("Held", "keys=10000", "pipelines/100-renewals", "redsync", "redislock"), 1, false},
	{"RedLock of five, 1 caller", "× faster than redsync", faster("RedLockAlone", "g=1", "redsync"), 1.25, true},
	{"RedLock of five, 64 callers", "× faster than redsync", faster("RedLock", "g=64", "redsync"), 4, true},
	{"", "allocations of a pair", value("RedLock", "g=64", "allocs/op", "redsync"), 110, false},
	{"RedLock of five, 20 processes that want one key", "scripts a run", value("RedLockWaiters", "guards=20", "scripts/run"), 40, false},
	{"", "round trips without a holder, p50", value("RedLockWaiters", "guards=20", "gap-p50-trips"), 5, false},
	{"", "ms without a holder, p99", value("RedLockWaiters", "guards=20", "gap-p99-ms"), 100, false},
	{"64 readers of one key", "time × 64 keys of their own", over("Readers", "keys=one", "onerun/keys=own"), 1, false},
	{"64 callers, eight at a time", "× faster than a counter in Redis", faster("Limits", "", "counter"), 1, true},
	{"", "× faster than x/rate's commands", faster("Limits", "", "x-rate"), 1, true},
	{"guard around an empty HTTP handler, key known", "time × the two round trips", slower("HTTPGuardAlone", "raw"), 1.3, false},
	{"the same with Idempotency-Key, body and answer", "time × the two round trips", slower("HTTPEmptyAlone", "raw"), 1.3, false},
}

// floorOf is the goal's figure for the floor, if that was measured.
func (g goal) floorOf(r *results) (m measured, ok bool) {
	for _, impl := range floors {
		if m, err := g.measure(r, impl); err == nil {
			return m, true
		}
	}
	return measured{}, false
}

// slower is our time with one caller by that of the best of the others.
func slower(bench string, others ...string) func(*results, string) (measured, error) {
	return over(bench, "g=1", others...)
}

// over is our time by that of the best of the others.
func over(bench, name string, others ...string) func(*results, string) (measured, error) {
	return func(r *results, impl string) (measured, error) {
		m, mine, best, err := beside(r, impl, bench, name, others)
		m.figure = mine / best
		return m, err
	}
}

// faster is the time of the best of the others by ours.
func faster(bench, name string, others ...string) func(*results, string) (measured, error) {
	return func(r *results, impl string) (measured, error) {
		m, mine, best, err := beside(r, impl, bench, name, others)
		m.figure = best / mine
		return m, err
	}
}

// beside looks up times. Another is an implementation, in the same case unless it is named with
// one of its own. If one is missing nobody knows which is best.
func beside(r *results, impl, bench, name string, others []string) (m measured, mine, best float64, err error) {
	mine, err = r.median(line{bench, impl, name}, perOp)
	if err != nil {
		return m, 0, 0, err
	}
	if mine <= 0 {
		return m, 0, 0, fmt.Errorf("%s took no time", line{bench, impl, name})
	}
	m.from = impl + " " + duration(mine)
	var all []string
	for _, other := range others {
		other, at, elsewhere := strings.Cut(other, "/")
		if !elsewhere {
			at = name
		}
		t, err := r.median(line{bench, other, at}, perOp)
		if err != nil {
			return m, 0, 0, err
		}
		if t <= 0 {
			return m, 0, 0, fmt.Errorf("%s took no time", line{bench, other, at})
		}
		all = append(all, other+" "+duration(t))
		if best == 0 || t < best {
			best = t
		}
	}
	m.against = strings.Join(all, ", ")
	return m, mine, best, nil
}

// value is a figure of ours, with the figures of the others if there are any.
func value(bench, name, unit string, others ...string) func(*results, string) (measured, error) {
	return func(r *results, impl string) (m measured, err error) {
		m.figure, err = r.median(line{bench, impl, name}, unit)
		if err != nil {
			return m, err
		}
		m.from = impl + " " + number(m.figure)
		var all []string
		for _, other := range others {
			text := "not in the input"
			if v, err := r.median(line{bench, other, name}, unit); err == nil {
				text = number(v)
			}
			all = append(all, other+" "+text)
		}
		m.against = strings.Join(all, ", ")
		return m, nil
	}
}
