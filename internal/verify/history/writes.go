package history

import "fmt"

// Writes are the reads and writes that were offered to a Resource. One is stale if the Resource
// accepted a higher fence for its key before, in a read or a write.
type Writes struct {
	Offered int // all
	Refused int // those that were stale and refused
	// those that were stale and accepted, or came under a fence that another holder had used:
	// there must be none
	StaleAccepted int
	// Wronged are those that were refused although their holder believed, and was the only one to.
	Wronged []Event
	Faults  []string // in words
}

// Stale is how many stale writes were offered.
func (w Writes) Stale() int { return w.Refused + w.StaleAccepted }

// JudgeWrites looks at the log of a Resource, in the order in which it decided, and at the beliefs
// under which the reads and writes were made. It does not trust the Resource.
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
		if e.Kind != Register && e.Kind != Write {
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
			w.Faults = append(w.Faults, fmt.Sprintf("%s could %s under fence %d on %s after %d", e.Holder, e.Kind, e.Fence, e.Key, highest[e.Key]))
		case holder[id] != "" && holder[id] != e.Holder:
			w.StaleAccepted++
			w.Faults = append(w.Faults, fmt.Sprintf("%s and %s used one fence, %d, on %s", e.Holder, holder[id], e.Fence, e.Key))
		default:
			holder[id], highest[e.Key] = e.Holder, e.Fence
		}
	}
	return w
}
