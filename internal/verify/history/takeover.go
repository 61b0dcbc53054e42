package history

import "time"

// A Takeover is what passed between the end of a belief and the begin of the next one in its key,
// by a client that was waiting by then.
type Takeover struct {
	After string // how the former ended: "killed", or its Event.Reason
	Lateness
}

// Takeovers returns all of them. Net is without the times in which the process that takes over, or
// one of the others, did not run.
func Takeovers(events []Event, others ...string) (all []Takeover) {
	killed, stalls := Kills(events), Stalls(events)
	last := map[string]Event{}
	for _, e := range Beliefs(events) {
		was, ok := last[e.Key]
		last[e.Key] = e
		end := was.until(killed)
		if !ok || e.Since > end || e.Call < end {
			continue
		}
		reason := was.Reason
		if !was.over() {
			reason = "killed"
		}
		gross := time.Duration(e.Call - end)
		stalled := stalls.Within(end, e.Call, append([]string{e.Process}, others...)...)
		all = append(all, Takeover{After: reason, Lateness: Lateness{Gross: gross, Net: gross - stalled}})
	}
	return all
}
