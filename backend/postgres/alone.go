package postgres

import (
	"context"
	"database/sql"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// The states of a row.
const (
	free   = "free"
	held   = "held"
	kept   = "kept" // by a minimum hold
	done   = "done"
	shared = "shared" // what claims share, see sharing.go
)

// races is how often a statement is repeated at once after another one has changed the row that it
// had read. Each time, another claim has made progress.
const races = 20

// isPlain reports whether the claim asks for a key alone, and asks for nothing special. All others
// are decided by package holders.
func isPlain(c driver.Claim) bool {
	return c.MaxHolders <= 1 && c.Fence == 0 && c.Hint == 0
}

// acquireAlone makes a plain claim. found is the state of the row. If it is shared, nothing was
// done.
func (l *Locker) acquireAlone(
	ctx context.Context, c driver.Claim,
) (grant driver.Answer, found string, err error) {
	for range races {
		var fence, last sql.NullInt64
		var mine, live, elsewhere bool
		var id string
		var label, record encoded
		var left int64
		err := l.db.QueryRowContext(ctx, l.sql().acquire,
			[]byte(c.Key), c.ID, micros(c.TTL), []byte(c.Label), max(c.Reserve, 0),
		).Scan(&fence, &last, &mine, &live, &found, &id, &label, &left, &record, &elsewhere)
		switch {
		case isRace(err): // as if the row had changed
		case err != nil:
			return driver.Answer{}, "", err
		case fence.Valid:
			grant = driver.Answer{State: driver.Granted, Fence: uint64(fence.Int64), Held: mine}
			if !mine {
				grant.Reserved = int(last.Int64 - fence.Int64)
			}
			return grant, held, nil
		case live && found == shared:
			return driver.Answer{}, shared, nil
		case live && !mine:
			grant = driver.Answer{
				State: driver.Busy, Left: duration(left), Label: string(label), Holder: id,
			}
			if found == done {
				grant.State, grant.Holder, grant.Record = driver.Done, "", record
			}
			return grant, found, nil
		case elsewhere:
			return driver.Answer{}, "", l.errElsewhere()
		}
	}
	return contested, free, nil
}

// contested is the answer to a claim of a row that others have changed too often meanwhile.
var contested = driver.Answer{State: driver.Busy, Reason: driver.Collided, Left: time.Millisecond}

// renewAlone renews a claim that holds its key alone. If found is shared, nothing was done.
func (l *Locker) renewAlone(
	ctx context.Context, c driver.Claim,
) (renewed bool, found string, err error) {
	for range races {
		var n int
		err = l.db.QueryRowContext(ctx, l.sql().renew,
			[]byte(c.Key), c.ID, micros(c.TTL), int64(c.Fence), max(c.Reserve, 0),
		).Scan(&n, &found)
		if !isRace(err) {
			return n > 0, found, err
		}
	}
	return false, "", err
}

// releaseAlone releases a claim that holds its key alone. If found is shared, nothing was done.
func (l *Locker) releaseAlone(
	ctx context.Context, c driver.Claim, after driver.After,
) (released bool, found string, err error) {
	leave, record := free, any(nil)
	switch {
	case after.Keep <= 0:
		after.Keep = 0
	case after.Done:
		leave, record = done, append([]byte{}, after.Record...)
	default:
		leave = kept
	}
	for range races {
		var n int
		var notify, mine, live bool
		var commit sql.NullString
		err = l.db.QueryRowContext(ctx, l.sql().release,
			[]byte(c.Key), c.ID, leave, micros(after.Keep), []byte(c.Label), record,
		).Scan(&n, &notify, &commit, &found, &mine, &live)
		switch {
		case isRace(err):
		case err != nil:
			return false, "", err
		case n > 0:
			if notify {
				l.sender.send(payload(c.Key))
			}
			return true, found, nil
		case found == held && mine && live: // another call has changed it meanwhile
		case found == shared:
			return false, shared, nil
		default: // released before, if it has left something
			return mine && live && (found == kept || found == done), found, nil
		}
	}
	return false, "", err
}

// micros returns a duration in whole microseconds, rounded up.
func micros(d time.Duration) int64 { return int64((d + time.Microsecond - 1) / time.Microsecond) }

// duration returns a time that is left, in microseconds, which is at least one.
func duration(us int64) time.Duration { return time.Duration(max(us, 1)) * time.Microsecond }
