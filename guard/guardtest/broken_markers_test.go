package guardtest_test

import (
	"bytes"
	"context"
	"strings"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

func brokenMarkers() []broken {
	return []broken{
		{"a minimum hold is not kept", keeping(func(after *driver.After) {
			if !after.Done {
				after.Keep = 0
			}
		}), []string{"a minimum hold keeps the key busy for every claim", "a minimum hold ends"}},
		{"a minimum hold does not keep out the same claim", wrapped(holdsForOthers), []string{"a minimum hold keeps the key busy for every claim"}},
		{"a done marker is a minimum hold", keeping(func(after *driver.After) { after.Done = false }), []string{
			"a done marker answers with its record", "a done marker ends with its window",
		}},
		{"a marker forgets its record", keeping(func(after *driver.After) { after.Record = nil }), []string{
			"a done marker answers with its record", "a record is returned byte for byte",
		}},
		{"records are changed to valid UTF-8", keeping(func(after *driver.After) {
			after.Record = []byte(strings.ToValidUTF8(string(after.Record), "\ufffd"))
		}), []string{"a record is returned byte for byte"}},
		{"records are trimmed", keeping(func(after *driver.After) { after.Record = bytes.TrimSpace(after.Record) }), []string{"a record is returned byte for byte"}},
		{"records are limited to 16 bits of length", keeping(func(after *driver.After) { after.Record = after.Record[:len(after.Record)%(1<<16)] }), []string{
			"a record is returned byte for byte",
		}},
		{"an empty record leaves the earlier record", wrapped(recordsStay), []string{"a record belongs to its run alone"}},
		{"a record is the caller's own slice", wrapped(lastRecord), []string{"the store copies a record"}},
		{"a repeated release replaces the record", wrapped(lastRecord), []string{"a repeated release changes nothing"}},
		{"a repeated release returns false", wrapped(forgetsReleases), []string{"a repeated release changes nothing"}},
		{"a plain release removes the minimum hold and the marker", wrapped(removesKept(true)), []string{"a plain release leaves a minimum hold and a marker as they are"}},
		{"a plain release by any claim removes the minimum hold and the marker", wrapped(removesKept(false)), []string{
			"a release by another claim leaves a minimum hold and a marker as they are",
		}},
	}
}

func holdsForOthers(l guard.Locker) guard.Locker {
	return &twist{Locker: l, acquire: func(ctx context.Context, c driver.Claim) (driver.Answer, error) {
		g, err := l.TryAcquire(ctx, c)
		if g.State == driver.Busy {
			if mine, _ := l.Release(ctx, c, driver.After{}); mine { // it left the minimum hold
				return driver.Answer{State: driver.Granted, Fence: 1}, nil
			}
		}
		return g, err
	}}
}

// recordsStay keeps a key's record until a later run leaves another.
func recordsStay(l guard.Locker) guard.Locker {
	return ownRecords(l, func(after driver.After) bool { return len(after.Record) > 0 })
}

// lastRecord keeps the record of the last release of a claim.
func lastRecord(l guard.Locker) guard.Locker {
	return ownRecords(l, func(after driver.After) bool { return after.Done })
}

// ownRecords returns records that it keeps itself. keep selects the releases whose records it
// keeps.
func ownRecords(l guard.Locker, keep func(driver.After) bool) guard.Locker {
	var records memo[[]byte]
	return &twist{
		Locker: l,
		acquire: func(ctx context.Context, c driver.Claim) (driver.Answer, error) {
			g, err := l.TryAcquire(ctx, c)
			if g.State == driver.Done {
				g.Record = records.get(c.Key)
			}
			return g, err
		},
		release: func(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
			held, err := l.Release(ctx, c, after)
			if held && keep(after) {
				records.set(c.Key, after.Record)
			}
			return held, err
		},
	}
}

// forgetsReleases returns false from the second release of a claim.
func forgetsReleases(l guard.Locker) guard.Locker {
	var released memo[bool]
	return &twist{Locker: l, release: func(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
		held, err := l.Release(ctx, c, after)
		return held && !released.set(c.ID, true), err
	}}
}

// removesKept makes a plain release free a key that is kept. If own is set, a release by the claim
// that left the hold or the marker does so. Otherwise, a release by any other claim does.
func removesKept(own bool) wrap {
	return func(l guard.Locker) guard.Locker {
		var kept memo[string]
		var free memo[bool]
		return &twist{
			Locker: l,
			acquire: func(ctx context.Context, c driver.Claim) (driver.Answer, error) {
				g, err := l.TryAcquire(ctx, c)
				if free.get(c.Key) && g.State != driver.Granted {
					return driver.Answer{State: driver.Granted, Fence: 1}, nil
				}
				return g, err
			},
			release: func(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
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
