package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/seed-1795987d/onerun/backend/internal/holders"
)

// A row is a key as it was read at a moment of the server's clock. What has ended is not in it.
type row struct {
	now     time.Time
	version int64 // 0 if there is no row
	last    uint64
	// A key that is done has one holder: the claim that has left the marker.
	holders.Key
	done   bool
	record []byte
}

// An effect is what has changed in a row.
type effect uint8

const (
	nothing effect = iota
	changed        // something that no waiter needs to know
	freed          // a waiter may be granted the key
	granted        // a claim was granted the key
	joined         // like granted, but a waiter may be granted the key, too
)

// change reads the key, lets f change it, and writes it if nobody else has written it since.
// Otherwise it begins again. written is false if others were faster too often.
func (l *Locker) change(
	ctx context.Context, key string, f func(r *row) effect,
) (written bool, err error) {
	for range races {
		r, err := l.read(ctx, key)
		if err != nil {
			return false, err
		}
		e := f(r)
		if e == nothing {
			return true, nil
		}
		written, err := l.write(ctx, key, r, e)
		if err != nil && !isRace(err) {
			return false, err
		}
		if written {
			return true, nil
		}
	}
	return false, nil
}

func (l *Locker) read(ctx context.Context, key string) (*row, error) {
	return scan(l.db.QueryRowContext(ctx, l.sql().read, []byte(key)))
}

// scan returns the row that a statement has read.
func scan(answer *sql.Row) (*row, error) {
	var r row
	var standby bool
	var now, fence, last, ends int64
	var state, id string
	var label, record encoded
	var text []byte
	err := answer.Scan(
		&standby, &now, &r.version, &state, &id, &label, &fence, &last, &ends, &record, &text,
	)
	if err == nil && standby {
		err = errStandby
	}
	if err != nil {
		return nil, err
	}
	r.now, r.last, r.record = time.UnixMicro(now), uint64(last), record
	switch state {
	case "", free:
	case held, kept, done:
		r.Holders = []holders.Holder{{
			ID: id, MaxHolders: 1, Fence: uint64(fence), First: uint64(fence), Last: uint64(last),
			Label: string(label), Released: state != held, Ends: time.UnixMicro(ends),
		}}
	case shared:
		if r.Key, err = decode(text); err != nil {
			return nil, fmt.Errorf("the column sharing: %w", err)
		}
	default:
		return nil, fmt.Errorf("the column state has %q", state)
	}
	r.Expire(r.now)
	r.done = state == done && len(r.Holders) > 0
	if !r.done {
		r.record = nil
	}
	return &r, nil
}

// write writes the row if its version is still the same.
func (l *Locker) write(ctx context.Context, key string, r *row, e effect) (written bool, err error) {
	state, ends := free, r.now
	var id, label string
	var text sql.NullString
	fence := r.last
	switch {
	case r.IsFree():
	case len(r.Holders) == 1 && r.Holders[0].MaxHolders == 1 && r.Wanted.ID == "":
		h := r.Holders[0]
		state, id, label, fence, ends = held, h.ID, h.Label, h.Fence, h.Ends
		if h.Released {
			state = kept
		}
		if r.done {
			state = done
		}
	default:
		state, ends = shared, r.Ends()
		encoded, err := encode(&r.Key)
		if err != nil {
			return false, err
		}
		text = sql.NullString{String: string(encoded), Valid: true}
	}
	var record any
	if state == done {
		record = append([]byte{}, r.record...)
	}
	var n int
	var notify, elsewhere bool
	err = l.db.QueryRowContext(ctx, l.sql().write,
		[]byte(key), r.version, state, id, []byte(label), int64(fence), int64(r.last),
		ceilMicro(ends), record, text, e == granted || e == joined,
	).Scan(&n, &notify, &elsewhere)
	if err == nil && elsewhere {
		err = l.errElsewhere()
	}
	if err == nil && notify && (e == freed || e == joined) {
		l.sender.send(payload(key))
	}
	return n > 0, err
}
