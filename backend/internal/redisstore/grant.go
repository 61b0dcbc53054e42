package redisstore

import (
	"time"

	"github.com/seed-1795987d/onerun/guard"
)

// toGrant reads the answer of a script that asks for a key, see Grant.
func toGrant(answer any) (guard.Grant, bool) {
	if fence, ok := answer.(int64); ok {
		return granted(fence, 0)
	}
	parts, ok := answer.([]any)
	if !ok || len(parts) < 3 {
		return guard.Grant{}, false
	}
	state, ok := parts[0].(int64)
	number, ok1 := parts[1].(int64)
	if !ok || !ok1 {
		return guard.Grant{}, false
	}
	switch guard.State(state) {
	case guard.Granted:
		clock, ok := parts[2].(int64)
		grant, positive := granted(number, clock)
		return grant, ok && positive
	case guard.Done:
		if len(parts) != 5 {
			return guard.Grant{}, false
		}
		text, ok := parts[2].(string)
		before, ok1 := parts[3].(int64)
		label, ok2 := parts[4].(string)
		if !ok || !ok1 || !ok2 || before < 0 {
			return guard.Grant{}, false
		}
		record := []byte(text[min(int(before), len(text)):])
		return guard.Grant{State: guard.Done, Left: left(number), Record: record, Label: label}, true
	case guard.Busy:
		if len(parts) != 4 && len(parts) != 6 {
			return guard.Grant{}, false
		}
		label, ok := parts[2].(string)
		holder, ok1 := parts[3].(string)
		grant := guard.Grant{State: guard.Busy, Left: left(number), Label: label, Holder: holder}
		if len(parts) == 6 {
			ahead, ok2 := parts[4].(int64)
			called, ok3 := parts[5].(int64)
			grant.Ahead, grant.Called = int(ahead), called == 1
			ok = ok && ok2 && ok3
		}
		return grant, ok && ok1
	}
	return guard.Grant{}, false
}

func granted(fence, clock int64) (guard.Grant, bool) {
	grant := guard.Grant{State: guard.Granted, Fence: uint64(fence), Clock: uint64(clock)}
	if fence < 0 {
		grant.Fence, grant.Held = uint64(-fence), true
	}
	return grant, fence != 0
}

func left(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }
