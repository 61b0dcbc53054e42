package faults_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/seed-1795987d/onerun/internal/verify/history"
)

const (
	// maxLate is how late a context may end (I3).
	maxLate = 20 * time.Millisecond
	// maxOverrun is how long after the end of its context a call may return (I6).
	maxOverrun = 100 * time.Millisecond
	// maxCrash is how long after the TTL of a dead worker its key may be taken over (I4).
	maxCrash = 100 * time.Millisecond
	// checkLimit bounds porcupine for one key.
	checkLimit = 20 * time.Second
)

// A result is the outcome of a row on a backend: a line of the report.
type result struct {
	row      row
	backend  string
	proofs   []string
	beliefs  int
	overlaps []history.Overlap
	writes   history.Writes
	late     []history.Lateness
	takeover []history.Takeover
	leaks    []string
	verdict  string // porcupine's
	shown    string // the metric
	failures []string
}

func (r *result) fail(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

// judge looks at what the workers say of themselves and at the history.
func (s *scene) judge(last []closing, events []history.Event) *result {
	r := &result{row: s.row, backend: s.deployment.backend, proofs: s.proofs}
	r.beliefs = len(history.Beliefs(events))
	if least := max(s.row.beliefs, 3); r.beliefs < least {
		r.fail("there were %d beliefs, which prove nothing: %d are the least", r.beliefs, least)
	}
	if len(s.proofs) == 0 {
		r.fail("nothing proves that the fault was in force")
	}
	r.judgeBeliefs(events)
	r.judgeTimes(events)
	r.writes = history.JudgeWrites(events)
	if r.writes.StaleAccepted > 0 || len(r.writes.Wronged) > 0 && !s.row.window {
		r.fail("I2: %s", strings.Join(r.writes.Faults, "; "))
	}
	if r.writes.Offered == 0 {
		r.fail("nothing was written")
	}
	r.verdict = "left out"
	if !s.row.forgets {
		if r.backend == "redlock" {
			events = history.OfQuorum(events)
		}
		v := history.Linearizable(events, checkLimit)
		r.verdict = v.String()
		if !v.OK() {
			r.fail("I7, I9: porcupine says %v", v)
		}
	}
	r.judgeClosings(last)
	return r
}

// judgeBeliefs looks for overlaps. In a window, overlaps are allowed, but the overtaken holder
// must detect them.
func (r *result) judgeBeliefs(events []history.Event) {
	r.overlaps = history.Overlaps(events)
	for _, o := range r.overlaps {
		if !r.row.window {
			r.fail("I1: %v", o)
		} else if o.One.Reason == "released" && released(events, o.One) {
			r.fail("I8: %v, and the first holder was not notified", o)
		}
	}
	for _, e := range history.Beliefs(events) {
		if _, killed := history.Kills(events)[e.Process]; e.Return == 0 && !killed {
			r.fail("I3: %s has not stopped believing in %s", e.Process, e.Key)
		}
	}
}

// released reports whether the store has released the claim of a belief as one that was held.
func released(events []history.Event, belief history.Event) bool {
	return slices.ContainsFunc(events, func(e history.Event) bool {
		return e.Kind == history.Release && e.Claim == belief.Claim && e.Outcome == history.OK
	})
}

func (r *result) judgeTimes(events []history.Event) {
	r.late = history.Late(events)
	if p99 := history.Percentile(nets(r.late), 0.99); p99 > maxLate {
		r.fail("I3: contexts have ended up to %v too late, net; those that did: %s", p99, lateOnes(events))
	}
	if over := history.Percentile(nets(history.Overruns(events)), 1); over > maxOverrun {
		r.fail("I6: a call has returned %v after its context had ended", over)
	}
	r.takeover = history.Takeovers(events, "test")
	for _, one := range r.takeover {
		if one.After == "killed" && one.Net > ttl+maxCrash {
			r.fail("I4: the next holder was in %v (net) after one was killed", one.Net)
		}
	}
}

func (r *result) judgeClosings(last []closing) {
	var lines []string
	for _, c := range last {
		lines = append(lines, c.Metrics...)
		if strings.TrimSpace(c.Leaks) != "" {
			r.leaks = append(r.leaks, c.Leaks)
			r.fail("I5: %s", c.Leaks)
		}
		for _, err := range c.Untyped {
			r.fail("I8: an error without a type: %s", err)
		}
	}
	want, ok := r.row.shows[r.backend]
	if !ok {
		want = r.row.shows[""]
	}
	if want == "" {
		r.shown = "none, as it should be"
		return
	}
	slices.Sort(lines)
	if at := slices.IndexFunc(lines, regexp.MustCompile(want).MatchString); at >= 0 {
		r.shown = lines[at]
		return
	}
	r.fail("the metrics do not show %s; there are: %s", want, strings.Join(lines, ", "))
}

// lateOnes names the beliefs that have ended late, and what the Guards said of that.
func lateOnes(events []history.Event) (text string) {
	for _, e := range history.Beliefs(events) {
		if late := time.Duration(e.Return - e.Deadline); e.Deadline > 0 && late > maxLate {
			text += fmt.Sprintf("%s on %s by %v, of which the Guard has said %v; ", e.Process, e.Key, late, e.Late)
		}
	}
	return text
}

func nets(all []history.Lateness) (net []time.Duration) {
	for _, one := range all {
		net = append(net, one.Net)
	}
	return net
}

func grosses(all []history.Lateness) (gross []time.Duration) {
	for _, one := range all {
		gross = append(gross, one.Gross)
	}
	return gross
}
