package postgres

import (
	"context"
	"database/sql"
	"time"

	"github.com/seed-1795987d/onerun/backend/internal/sqlstore"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// isPlain reports whether the claim asks for a key alone, and asks for nothing special. Package
// holders decides all others.
func isPlain(c driver.Claim) bool {
	return c.MaxHolders <= 1 && c.Fence == 0 && c.Fences.Hint == 0
}

// AcquireAlone implements sqlstore.Alone.
func (d *dialect) AcquireAlone(ctx context.Context, c driver.Claim) (answer driver.Answer, err error) {
	if !isPlain(c) {
		return answer, sqlstore.ErrShared
	}
	err = sqlstore.Repeat(isRace, func() (bool, error) {
		var fence, last sql.NullInt64
		var mine, live, elsewhere bool
		var found, id string
		var label, record encoded
		var left int64
		err := d.db.QueryRowContext(ctx, d.sql("acquire"),
			[]byte(c.Key), c.ID, sqlstore.Micros(c.TTL), []byte(c.Label), max(c.Fences.Reserve, 0),
		).Scan(&fence, &last, &mine, &live, &found, &id, &label, &left, &record, &elsewhere)
		switch {
		case err != nil:
		case fence.Valid:
			answer = driver.Answer{State: driver.Granted, Fence: uint64(fence.Int64), Held: mine}
			if !mine {
				answer.Reserved = int(last.Int64 - fence.Int64)
			}
			return true, nil
		case live && found == sqlstore.Shared:
			return false, sqlstore.ErrShared
		case live && found == sqlstore.Done:
			answer = driver.Answer{State: driver.Done, Left: duration(left), Label: string(label), Record: record}
			return true, nil
		case live && !mine:
			answer = driver.Answer{State: driver.Busy, Left: duration(left), Label: string(label), Holder: id}
			return true, nil
		case elsewhere:
			return false, d.errElsewhere()
		}
		return false, err
	})
	return answer, err
}

// ReleaseAlone implements sqlstore.Alone.
func (d *dialect) ReleaseAlone(ctx context.Context, c driver.Claim, after driver.After) (released bool, err error) {
	leave, record := sqlstore.Free, any(nil)
	switch {
	case after.Keep <= 0:
		after.Keep = 0
	case after.Done:
		leave, record = sqlstore.Done, append([]byte{}, after.Record...)
	default:
		leave = sqlstore.Kept
	}
	err = sqlstore.Repeat(isRace, func() (bool, error) {
		var notify, mine, live bool
		var found string
		var commit sql.NullString
		err := d.db.QueryRowContext(ctx, d.sql("release"),
			[]byte(c.Key), c.ID, leave, sqlstore.Micros(after.Keep), []byte(c.Label), record,
		).Scan(&released, &notify, &commit, &found, &mine, &live)
		switch {
		case err != nil:
			return false, err
		case released && notify:
			d.sender.send(sqlstore.Payload(c.Key))
		case !released && found == sqlstore.Shared:
			return false, sqlstore.ErrShared
		case !released && found == sqlstore.Held && mine && live: // it has changed meanwhile
			return false, nil
		case !released: // it was released before if it has left something
			released = mine && live && (found == sqlstore.Kept || found == sqlstore.Done)
		}
		return true, nil
	})
	return released, err
}

// duration returns a time that is left, in microseconds, which is at least one.
func duration(us int64) time.Duration { return time.Duration(max(us, 1)) * time.Microsecond }
