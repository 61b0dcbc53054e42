package history

import "fmt"

// Writes are what was offered to a Resource. A write is stale if a higher fence was accepted for its key before.
type Writes struct {
	Offered       int // all
	Refused       int // those that were stale and refused
	StaleAccepted int // those that were stale and accepted, or came under a fence that another holder had used: there must be none
	// Wronged are those that were refused although their holder believed, and was the only one to.
	Wronged []Event
	Faults  []string // in words
}

// Stale is how many stale writes were offered.
func (w Writes) Stale() int { return w.Refused + w.StaleAccepted }

// JudgeWrites looks at the log of a Resource, in the order in which it has decided, and at the beliefs under which the writes were made. It takes no word of the
// Resource for granted.
func JudgeWrites(events []Event) (w Writes) {
	believed := map[string]Event{}
	for _, e := range Beliefs(events) {
		believed[fmt.Sprint(e.Process, "#", e.Number)] = e
	}
	overlapped := map[string]bool{}
	for _, o := range Overlaps(events) {
		overlapped[o.Key] = true
	}
	highest, holder := map[string]uint64{}, map[string]string{}
	killed := Kills(events)
	for _, e := range events {
		if e.Kind != Write {
			continue
		}
		w.Offered++
		stale := e.Fence < highest[e.Key]
		switch id := fmt.Sprint(e.Key, " ", e.Fence); {
		case e.Outcome == Refused:
			w.Refused++
			b, ok := believed[e.Holder]
			if !stale || ok && b.until(killed) > e.Return && !overlapped[e.Key] {
				w.Wronged = append(w.Wronged, e)
				w.Faults = append(w.Faults, fmt.Sprintf("%s was refused for fence %d on %s, which it held", e.Holder, e.Fence, e.Key))
			}
		case stale:
			w.StaleAccepted++
			w.Faults = append(w.Faults, fmt.Sprintf("%s wrote under fence %d on %s after %d", e.Holder, e.Fence, e.Key, highest[e.Key]))
		case holder[id] != "" && holder[id] != e.Holder:
			w.StaleAccepted++
			w.Faults = append(w.Faults, fmt.Sprintf("%s and %s wrote under one fence, %d, on %s", e.Holder, holder[id], e.Fence, e.Key))
		default:
			holder[id], highest[e.Key] = e.Holder, e.Fence
		}
	}
	return w
}
