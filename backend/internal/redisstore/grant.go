package redisstore

import (
	"context"
	"time"

	"github.com/seed-1795987d/onerun/guard"
)

// Grant runs a script that asks for a key. It answers the fence if it granted, negative if the claim held
// the key already; {1, that, clock as a fence} if there was a hint; else {0 busy, ms left, label, holder} or
// {2 done, ms left, record}.
func (s *Store) Grant(ctx context.Context, c Call) (guard.Grant, error) {
	answer, err := s.Any(ctx, c)
	if answer == nil && err != nil {
		return guard.Grant{}, err
	}
	grant, ok := toGrant(answer)
	switch {
	case !ok:
		return guard.Grant{}, &guard.StoreError{
			Store: s.backend, Op: c.Op, Key: c.Key, Addr: s.addr, Kind: guard.KindProtocol, Err: ErrAnswer,
		}
	case err != nil && grant.State == guard.Granted:
		return guard.Grant{}, err // too few replicas have it; where it was not granted, there is nothing to acknowledge
	}
	return grant, nil
}

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
		record, ok := parts[2].(string)
		return guard.Grant{State: guard.Done, Left: left(number), Record: []byte(record)}, ok
	case guard.Busy:
		if len(parts) != 4 {
			return guard.Grant{}, false
		}
		label, ok := parts[2].(string)
		holder, ok1 := parts[3].(string)
		return guard.Grant{State: guard.Busy, Left: left(number), Label: label, Holder: holder}, ok && ok1
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
