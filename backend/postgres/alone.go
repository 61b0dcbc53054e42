package postgres

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// The states of a row.
const (
	free   = "free"
	held   = "held"
	kept   = "kept" // its minimum hold has not passed
	done   = "done"
	shared = "shared" // the claims that share the key are in the column sharing
)

// errShared is the result of a statement for a claim that holds its key alone. It has done nothing,
// because claims share the key.
var errShared = errors.New("claims share the key")

// isPlain reports whether the claim asks for a key alone, and asks for nothing special. Package
// holders decides all others.
func isPlain(c driver.Claim) bool {
	return c.MaxHolders <= 1 && c.Fence == 0 && c.Fences.Hint == 0
}

// acquireAlone makes a plain claim, or returns errShared.
func (l *Locker) acquireAlone(ctx context.Context, c driver.Claim) (answer driver.Answer, err error) {
	err = repeat(func() (bool, error) {
		var fence, last sql.NullInt64
		var mine, live, elsewhere bool
		var found, id string
		var label, record encoded
		var left int64
		err := l.db.QueryRowContext(ctx, l.sql("acquire"),
			[]byte(c.Key), c.ID, micros(c.TTL), []byte(c.Label), max(c.Fences.Reserve, 0),
		).Scan(&fence, &last, &mine, &live, &found, &id, &label, &left, &record, &elsewhere)
		switch {
		case err != nil:
		case fence.Valid:
			answer = driver.Answer{State: driver.Granted, Fence: uint64(fence.Int64), Held: mine}
			if !mine {
				answer.Reserved = int(last.Int64 - fence.Int64)
			}
			return true, nil
		case live && found == shared:
			return false, errShared
		case live && found == done:
			answer = driver.Answer{State: driver.Done, Left: duration(left), Label: string(label), Record: record}
			return true, nil
		case live && !mine:
			answer = driver.Answer{State: driver.Busy, Left: duration(left), Label: string(label), Holder: id}
			return true, nil
		case elsewhere:
			return false, l.errElsewhere()
		}
		return false, err
	})
	return answer, err
}

// releaseAlone releases a claim that holds its key alone, or returns errShared.
func (l *Locker) releaseAlone(ctx context.Context, c driver.Claim, after driver.After) (released bool, err error) {
	leave, record := free, any(nil)
	switch {
	case after.Keep <= 0:
		after.Keep = 0
	case after.Done:
		leave, record = done, append([]byte{}, after.Record...)
	default:
		leave = kept
	}
	err = repeat(func() (bool, error) {
		var notify, mine, live bool
		var found string
		var commit sql.NullString
		err := l.db.QueryRowContext(ctx, l.sql("release"),
			[]byte(c.Key), c.ID, leave, micros(after.Keep), []byte(c.Label), record,
		).Scan(&released, &notify, &commit, &found, &mine, &live)
		switch {
		case err != nil:
			return false, err
		case released && notify:
			l.sender.send(payload(c.Key))
		case !released && found == shared:
			return false, errShared
		case !released && found == held && mine && live: // another call has changed it meanwhile
			return false, nil
		case !released: // it was released before if it has left something
			released = mine && live && (found == kept || found == done)
		}
		return true, nil
	})
	return released, err
}

// micros returns a duration in whole microseconds, rounded up.
func micros(d time.Duration) int64 { return int64((d + time.Microsecond - 1) / time.Microsecond) }

// duration returns a time that is left, in microseconds, which is at least one.
func duration(us int64) time.Duration { return time.Duration(max(us, 1)) * time.Microsecond }
