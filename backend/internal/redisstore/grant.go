package redisstore

import (
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// toGrant reads the answer of a script that acquires a key, see Store.Grant.
func toGrant(answer any) (driver.Grant, bool) {
	if fence, ok := answer.(int64); ok {
		return granted(fence, 0, 0)
	}
	parts, ok := answer.([]any)
	if !ok || len(parts) < 3 {
		return driver.Grant{}, false
	}
	state, ok := parts[0].(int64)
	number, ok1 := parts[1].(int64)
	if !ok || !ok1 {
		return driver.Grant{}, false
	}
	switch driver.State(state) {
	case driver.Granted:
		if len(parts) < 4 || len(parts) > 6 {
			return driver.Grant{}, false
		}
		clock, ok := parts[2].(int64)
		reserved, ok1 := parts[3].(int64)
		grant, sound := granted(number, clock, reserved)
		if len(parts) > 4 {
			seat, ok2 := parts[4].(int64)
			grant.Seat = int(seat)
			sound = sound && ok2 && seat > 0 && readOpen(parts[5:], &grant)
		}
		return grant, ok && ok1 && sound
	case driver.Done:
		if len(parts) != 5 {
			return driver.Grant{}, false
		}
		text, ok := parts[2].(string)
		before, ok1 := parts[3].(int64)
		label, ok2 := parts[4].(string)
		if !ok || !ok1 || !ok2 || before < 0 {
			return driver.Grant{}, false
		}
		record := []byte(text[min(int(before), len(text)):])
		return driver.Grant{State: driver.Done, Left: left(number), Record: record, Label: label}, true
	case driver.Busy:
		if len(parts) < 4 || len(parts) == 5 || len(parts) > 8 {
			return driver.Grant{}, false
		}
		label, ok := parts[2].(string)
		holder, ok1 := parts[3].(string)
		grant := driver.Grant{State: driver.Busy, Left: left(number), Label: label, Holder: holder}
		if grant.Shared = len(parts) > 6; grant.Shared {
			wanted, ok2 := parts[6].(int64)
			grant.Wanted = wanted == 1
			ok = ok && ok2 && readOpen(parts[7:], &grant)
		}
		if len(parts) >= 6 {
			ahead, ok2 := parts[4].(int64)
			notified, ok3 := parts[5].(int64)
			grant.Ahead, grant.Notified = int(ahead), notified == 1
			ok = ok && ok2 && ok3
		}
		return grant, ok && ok1
	}
	return driver.Grant{}, false
}

// readOpen reads the seats that the claim could have, if the answer ends with them.
func readOpen(rest []any, grant *driver.Grant) bool {
	if len(rest) == 0 {
		return true
	}
	seats, ok := rest[0].(int64)
	grant.Open = uint32(seats)
	return ok && seats >= 0
}

func granted(fence, clock, reserved int64) (grant driver.Grant, sound bool) {
	grant = driver.Grant{
		State: driver.Granted, Fence: uint64(fence), Clock: uint64(clock), Reserved: int(reserved),
	}
	if fence < 0 {
		grant.Fence, grant.Held = uint64(-fence), true
	}
	return grant, fence != 0 && clock >= 0 && reserved >= 0
}

func left(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }
