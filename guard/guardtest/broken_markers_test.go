package guardtest_test

import (
	"bytes"
	"context"
	"strings"

	"github.com/seed-1795987d/onerun/guard"
)

func brokenMarkers() []broken {
	return []broken{
		{
			name: "a minimum hold is not kept",
			store: keeping(func(after *guard.After) {
				if !after.Done {
					after.Keep = 0
				}
			}),
			caughtBy: []string{"a minimum hold keeps the key busy for everybody", "a minimum hold ends"},
		},
		{
			name:     "a minimum hold keeps out others only",
			store:    wrapped(holdsForOthers),
			caughtBy: []string{"a minimum hold keeps the key busy for everybody"},
		},
		{
			name:     "a done marker is a minimum hold",
			store:    keeping(func(after *guard.After) { after.Done = false }),
			caughtBy: []string{"a done marker answers with its record", "a done marker ends with its window"},
		},
		{
			name:     "a marker forgets its record",
			store:    keeping(func(after *guard.After) { after.Record = nil }),
			caughtBy: []string{"a done marker answers with its record", "a record comes back byte for byte"},
		},
		{
			name: "a record is text",
			store: keeping(func(after *guard.After) {
				after.Record = []byte(strings.ToValidUTF8(string(after.Record), "\ufffd"))
			}),
			caughtBy: []string{"a record comes back byte for byte"},
		},
		{
			name:     "a record is trimmed",
			store:    keeping(func(after *guard.After) { after.Record = bytes.TrimSpace(after.Record) }),
			caughtBy: []string{"a record comes back byte for byte"},
		},
		{
			name:     "a record has a length of 16 bits",
			store:    keeping(func(after *guard.After) { after.Record = after.Record[:len(after.Record)%(1<<16)] }),
			caughtBy: []string{"a record comes back byte for byte"},
		},
		{
			name:     "an empty record leaves the one before",
			store:    wrapped(recordsStay),
			caughtBy: []string{"a record stays with its run"},
		},
		{
			name:     "a record is the caller's own slice",
			store:    wrapped(lastRecord),
			caughtBy: []string{"a record is the store's own copy"},
		},
		{
			name:     "a repeated release leaves its own record",
			store:    wrapped(lastRecord),
			caughtBy: []string{"a repeated release changes nothing"},
		},
		{
			name:     "a repeated release is answered with no",
			store:    wrapped(forgetsReleases),
			caughtBy: []string{"a repeated release changes nothing"},
		},
		{
			name:     "a plain release takes away what was left",
			store:    wrapped(takesAway(true)),
			caughtBy: []string{"a plain release leaves a minimum hold and a marker as they are"},
		},
		{
			name:     "a plain release by anybody takes away what was left",
			store:    wrapped(takesAway(false)),
			caughtBy: []string{"a release by another leaves a minimum hold and a marker as they are"},
		},
	}
}

func holdsForOthers(l guard.Locker) guard.Locker {
	return &twist{Locker: l, acquire: func(ctx context.Context, c guard.Claim) (guard.Grant, error) {
		g, err := l.TryAcquire(ctx, c)
		if g.State == guard.Busy {
			if mine, _ := l.Release(ctx, c, guard.After{}); mine { // this ID has left the hold
				return guard.Grant{State: guard.Granted, Fence: 1}, nil
			}
		}
		return g, err
	}}
}

// recordsStay keeps a key's record until there is another.
func recordsStay(l guard.Locker) guard.Locker {
	return ownRecords(l, func(after guard.After) bool { return len(after.Record) > 0 })
}

// lastRecord keeps the record of the last release of a claim.
func lastRecord(l guard.Locker) guard.Locker {
	return ownRecords(l, func(after guard.After) bool { return after.Done })
}

// ownRecords answers with records that it keeps itself, of the releases of which keep says so.
func ownRecords(l guard.Locker, keep func(guard.After) bool) guard.Locker {
	var records memo[[]byte]
	return &twist{
		Locker: l,
		acquire: func(ctx context.Context, c guard.Claim) (guard.Grant, error) {
			g, err := l.TryAcquire(ctx, c)
			if g.State == guard.Done {
				g.Record = records.get(c.Key)
			}
			return g, err
		},
		release: func(ctx context.Context, c guard.Claim, after guard.After) (bool, error) {
			held, err := l.Release(ctx, c, after)
			if held && keep(after) {
				records.set(c.Key, after.Record)
			}
			return held, err
		},
	}
}

// forgetsReleases answers no to the second release of a claim.
func forgetsReleases(l guard.Locker) guard.Locker {
	var released memo[bool]
	return &twist{Locker: l, release: func(ctx context.Context, c guard.Claim, after guard.After) (bool, error) {
		held, err := l.Release(ctx, c, after)
		return held && !released.set(c.ID, true), err
	}}
}

// takesAway frees a key at a plain release of what is kept, by whoever left it or by anybody.
func takesAway(own bool) wrap {
	return func(l guard.Locker) guard.Locker {
		var kept memo[string]
		var free memo[bool]
		return &twist{
			Locker: l,
			acquire: func(ctx context.Context, c guard.Claim) (guard.Grant, error) {
				g, err := l.TryAcquire(ctx, c)
				if free.get(c.Key) && g.State != guard.Granted {
					return guard.Grant{State: guard.Granted, Fence: 1}, nil
				}
				return g, err
			},
			release: func(ctx context.Context, c guard.Claim, after guard.After) (bool, error) {
				if by := kept.get(c.Key); after.Keep == 0 && by != "" && (c.ID == by) == own {
					free.set(c.Key, true)
				}
				held, err := l.Release(ctx, c, after)
				if held && after.Keep > 0 {
					kept.set(c.Key, c.ID)
				}
				return held, err
			},
		}
	}
}
