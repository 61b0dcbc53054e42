package history

import (
	"slices"
	"time"
)

// A Lateness is by how much something came after the moment at which it should have. Net is
// without the times for which its process did not run.
type Lateness struct{ Gross, Net time.Duration }

// Late returns by how much contexts ended after the last moment at which the contract lets them:
// of all beliefs that ended as time was up, and of any that lasted longer than that.
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

func (p Pauses) after(process string, due, at int64) Lateness {
	gross := max(0, time.Duration(at-due))
	return Lateness{Gross: gross, Net: max(0, gross-p.Within(due, at, process))}
}

// Percentile returns the value below which a part of all lies, of 0 to 1; 0 if there are none.
func Percentile(all []time.Duration, part float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(len(sorted)-1, int(part*float64(len(sorted))))]
}
