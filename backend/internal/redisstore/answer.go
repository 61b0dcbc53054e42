package redisstore

import (
	"strconv"
	"strings"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// foreign is what the holder of a busy key begins with if it is another program. No ID and no owner
// has a NUL.
const foreign = "\x00"

// toGrant reads the answer of a script that acquires a key, see Store.toGrant.
func toGrant(answer any) (grant driver.Answer, sound bool) {
	if fence, ok := answer.(int64); ok {
		return granted(fence, 0, 0)
	}
	parts, ok := answer.([]any)
	if !ok {
		return driver.Answer{}, false
	}
	r := &reader{parts: parts}
	state, number := driver.State(r.integer()), r.integer()
	switch state {
	case driver.Granted:
		grant, sound = granted(number, r.integer(), r.integer())
		if len(r.parts) > 0 {
			grant.Seat = int(r.integer())
			sound = sound && grant.Seat > 0
		}
	case driver.Done:
		text, before, label := r.text(), r.integer(), r.text()
		sound = before >= 0
		record := []byte(text[min(max(before, 0), int64(len(text))):])
		grant = driver.Answer{State: state, Left: left(number), Record: record, Label: label}
	case driver.Busy:
		sound = true
		grant = driver.Answer{State: state, Left: left(number), Label: r.text()}
		grant.Reason = r.reason(&grant)
	}
	if !sound || r.bad || len(r.parts) > 0 {
		return driver.Answer{}, false
	}
	return grant, true
}

// reason reads the holder of a busy key, the claims ahead in the queue, and why the key is busy.
func (r *reader) reason(grant *driver.Answer) (why driver.Reason) {
	var isForeign bool
	if grant.Holder, isForeign = strings.CutPrefix(r.text(), foreign); isForeign {
		why = driver.HeldByProgram
	}
	notified := false
	if len(r.parts) > 0 {
		grant.Ahead, notified = int(r.integer()), r.integer() == 1
	}
	if len(r.parts) > 0 {
		why = driver.HeldShared
		if r.integer() == 1 {
			why = driver.HeldForClaim
		}
	}
	if notified {
		why = driver.OtherNotified
	}
	return why
}

func granted(fence, clock, reserved int64) (grant driver.Answer, sound bool) {
	grant = driver.Answer{
		State: driver.Granted, Fence: uint64(fence), Clock: uint64(clock), Reserved: int(reserved),
	}
	if fence < 0 {
		grant.Fence, grant.Held = uint64(-fence), true
	}
	return grant, fence != 0 && clock >= 0 && reserved >= 0
}

func left(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

// A reader reads the parts of a script's answer in order. bad is set by the first that is not as
// it should be.
type reader struct {
	parts []any
	bad   bool
}

func (r *reader) next() any {
	if len(r.parts) == 0 {
		r.bad = true
		return nil
	}
	first := r.parts[0]
	r.parts = r.parts[1:]
	return first
}

func (r *reader) text() string {
	s, ok := r.next().(string)
	r.bad = r.bad || !ok
	return s
}

func (r *reader) integer() int64 {
	n, ok := r.next().(int64)
	r.bad = r.bad || !ok
	return n
}

// number reads an integer, also one that a script has answered as text.
func (r *reader) number() int64 {
	switch v := r.next().(type) {
	case int64:
		return v
	case string:
		n, err := strconv.ParseInt(v, 10, 64)
		r.bad = r.bad || err != nil
		return n
	default:
		r.bad = true
		return 0
	}
}

func (r *reader) list() *reader {
	parts, ok := r.next().([]any)
	r.bad = r.bad || !ok
	return &reader{parts: parts}
}

// left reads a PTTL.
func (r *reader) left() time.Duration {
	return time.Duration(r.number()) * time.Millisecond
}
