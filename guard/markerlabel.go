package guard

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// The label of a done marker begins with the time at which the run ended, and with its name. So
// every backend keeps them. They stand between these two characters: markStart, Unix milliseconds,
// a space, the name, markEnd. The label of the run follows.
const (
	markStart = "\x1e"
	markEnd   = "\x1f"
)

// joinMarker returns the label of a done marker, of at most maxLabel bytes. If it would be longer,
// the name is cut, and then the time is left out, but never a part of the label.
func joinMarker(label, name string, at time.Time) string {
	mark := markStart + strconv.FormatInt(at.UnixMilli(), 10) + " "
	room := maxLabel - len(mark) - len(markEnd) - len(label)
	if room < 0 {
		return label
	}
	name = strings.ReplaceAll(name, markEnd, " ")
	if len(name) > room {
		for room > 0 && !utf8.RuneStart(name[room]) {
			room--
		}
		name = name[:room]
	}
	return mark + name + markEnd + label
}

// splitMarker is the reverse of joinMarker. The time is zero and the name empty if the marker has
// none of joinMarker's.
func splitMarker(marker string) (label, name string, at time.Time) {
	mark, label, found := strings.Cut(marker, markEnd)
	begin, name, _ := strings.Cut(strings.TrimPrefix(mark, markStart), " ")
	ms, err := strconv.ParseInt(begin, 10, 64)
	if !found || err != nil || !strings.HasPrefix(mark, markStart) {
		return marker, "", time.Time{}
	}
	return label, name, time.UnixMilli(ms)
}

func doneError(key string, answer driver.Answer) *DoneError {
	label, name, at := splitMarker(answer.Label)
	return &DoneError{Key: key, Left: answer.Left, Record: answer.Record, Label: label, Name: name, At: at}
}
