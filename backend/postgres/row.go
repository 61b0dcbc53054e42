package postgres

import (
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/seed-1795987d/onerun/backend/internal/holders"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// A row is a key as it was read at a moment of the server's clock. What has ended is not in it.
type row struct {
	now     time.Time
	version int64 // 0 if there is no row
	last    uint64
	holders.Key
}

// acquire decides any claim.
func (r *row) acquire(c driver.Claim) (driver.Answer, holders.Effect) {
	known := r.last != 0
	if !known { // it may have been forgotten
		r.last = holders.Clock(r.now) + holders.Ahead - 1
	}
	return r.Acquire(c, r.now, &r.last, known)
}

// change reads the key, lets decide change it, and writes it if nobody else has written it since.
// Otherwise it begins again.
func change[T any](
	ctx context.Context, l *Locker, key string, decide func(r *row) (T, holders.Effect),
) (answer T, err error) {
	err = repeat(func() (written bool, err error) {
		r, err := l.read(ctx, key)
		if err != nil {
			return false, err
		}
		var effect holders.Effect
		if answer, effect = decide(r); effect == holders.Nothing {
			return true, nil
		}
		return l.write(ctx, key, r, effect)
	})
	return answer, err
}

// races is how often repeat repeats. Each time, another claim has made progress.
const races = 20

// repeat calls f until it is done or has failed. It begins again at once if another transaction has
// changed the row that f had read. It fails with errRaces if that happens too often.
func repeat(f func() (done bool, err error)) error {
	for range races {
		if done, err := f(); done || err != nil && !isRace(err) {
			return err
		}
	}
	return errRaces
}

func (l *Locker) read(ctx context.Context, key string) (*row, error) {
	return scan(l.db.QueryRowContext(ctx, l.sql("read"), []byte(key)))
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
	r.now, r.last = time.UnixMicro(now).UTC(), uint64(last)
	switch state {
	case "", free:
	case held, kept, done:
		r.Holders = []holders.Holder{{
			ID: id, MaxHolders: 1, Fence: uint64(fence), First: uint64(fence), Last: uint64(last),
			Label: string(label), Released: state != held, Ends: time.UnixMicro(ends),
		}}
		r.Done, r.Record = state == done, record
	case shared:
		if r.Key, err = decode(text); err != nil {
			return nil, fmt.Errorf("the column sharing: %w", err)
		}
	default:
		return nil, fmt.Errorf("the column state has %q", state)
	}
	r.Expire(r.now)
	return &r, nil
}

// write writes the row if its version is still the same.
func (l *Locker) write(ctx context.Context, key string, r *row, effect holders.Effect) (written bool, err error) {
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
		if r.Done {
			state = done
		}
	default:
		state, ends = shared, r.Ends()
		text = sql.NullString{String: encode(r.Key), Valid: true}
	}
	var record any
	if state == done {
		record = append([]byte{}, r.Record...)
	}
	grants := effect == holders.Granted || effect == holders.Joined
	var notify, elsewhere bool
	err = l.db.QueryRowContext(ctx, l.sql("write"),
		[]byte(key), r.version, state, id, []byte(label), int64(fence), int64(r.last),
		ceilMicro(ends), record, text, grants,
	).Scan(&written, &notify, &elsewhere)
	if err == nil && elsewhere {
		err = l.errElsewhere()
	}
	if err == nil && notify && (effect == holders.Freed || effect == holders.Joined) {
		l.sender.send(payload(key))
	}
	return written, err
}

// encode returns the column sharing. Labels in it are in base64: jsonb holds no bytes.
func encode(k holders.Key) string {
	k.Holders = slices.Clone(k.Holders)
	for i, h := range k.Holders {
		k.Holders[i].Label = base64.StdEncoding.EncodeToString([]byte(h.Label))
	}
	return toJSON(k)
}

func decode(text []byte) (k holders.Key, err error) {
	if err := json.Unmarshal(text, &k); err != nil {
		return k, err
	}
	for i, h := range k.Holders {
		label, err := base64.StdEncoding.DecodeString(h.Label)
		if err != nil {
			return k, err
		}
		k.Holders[i].Label = string(label)
	}
	return k, nil
}

// ceilMicro returns a time in microseconds since 1970, rounded up.
func ceilMicro(t time.Time) int64 { return t.Add(time.Microsecond - 1).UnixMicro() }
