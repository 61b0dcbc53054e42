package sqlstore

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-1795987d/onerun/backend/internal/holders"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// A Row is a key as it was read at a moment of the store's clock. What has ended is not in it.
type Row struct {
	Now     time.Time
	Version int64 // 0 if there is no row
	Last    uint64
	holders.Key
}

// Columns are those of a row in the table. Times are in microseconds since 1970.
type Columns struct {
	Now       int64 // is not in the table
	Version   int64 // changes with each write
	State     string
	ID        string // of the claim that holds the key alone, or held it
	Label     []byte
	Fence     int64  // in use by that claim
	Last      int64  // the last fence that was issued or reserved
	Ends      int64  // when the lease, the minimum hold or the marker ends
	Record    []byte // of the done marker: not nil then
	Sharing   []byte // the claims that share the key, in JSON, or nil
	ForgetDay int64  // since 1970, from which the row may be deleted
}

// The states of a row. Rows of a ledger have others.
const (
	Free   = "free"
	Held   = "held"
	Kept   = "kept" // its minimum hold has not passed
	Done   = "done"
	Shared = "shared" // the claims that share the key are in the column sharing
)

// acquire decides any claim.
func (r *Row) acquire(c driver.Claim) (driver.Answer, holders.Effect) {
	known := r.Last != 0
	if !known { // it may have been forgotten
		r.Last = holders.Clock(r.Now) + holders.Ahead - 1
	}
	return r.Acquire(c, r.Now, &r.Last, known)
}

// ByVersion is Dialect.Change for a store of which a statement writes a row only if its version is
// still the one that was read.
func ByVersion(
	isRace func(error) bool, read func() (*Row, error), decide Decide,
	write func(r *Row, effect holders.Effect) (written bool, err error),
) error {
	return Repeat(isRace, func() (written bool, err error) {
		r, err := read()
		if err != nil {
			return false, err
		}
		effect := decide(r)
		if effect == holders.Nothing {
			return true, nil
		}
		return write(r, effect)
	})
}

// races is how often Repeat repeats. Each time, another claim has made progress.
const races = 20

// ErrRaces is the end of a call that others have overtaken too often.
var ErrRaces = errors.New("other calls have changed the key meanwhile")

// ErrLocked is the end of a claim that a transaction keeps away, by Dialect.Lock.
var ErrLocked = errors.New("a transaction keeps the key")

// Repeat calls f until it is done or has failed. It begins again at once if another transaction has
// changed the row that f had read. It fails with ErrRaces if that happens too often.
func Repeat(isRace func(error) bool, f func() (done bool, err error)) error {
	for range races {
		if done, err := f(); done || err != nil && !isRace(err) {
			return err
		}
	}
	return ErrRaces
}

// Row returns the row of the columns.
func (c *Columns) Row() (*Row, error) {
	r := Row{Now: time.UnixMicro(c.Now).UTC(), Version: c.Version, Last: uint64(c.Last)}
	switch c.State {
	case "", Free:
	case Held, Kept, Done:
		r.Holders = []holders.Holder{{
			ID: c.ID, MaxHolders: 1, Fence: uint64(c.Fence), First: uint64(c.Fence), Last: r.Last,
			Label: string(c.Label), Released: c.State != Held, Ends: time.UnixMicro(c.Ends),
		}}
		r.Done, r.Record = c.State == Done, c.Record
	case Shared:
		var err error
		if r.Key, err = decode(c.Sharing); err != nil {
			return nil, fmt.Errorf("the column sharing: %w", err)
		}
	default:
		return nil, fmt.Errorf("the column state has %q", c.State)
	}
	r.Expire(r.Now)
	return &r, nil
}

// Columns returns the columns of the row, with the version that was read.
func (r *Row) Columns() Columns {
	c := Columns{Version: r.Version, State: Free, Label: []byte{}, Fence: int64(r.Last), Last: int64(r.Last)}
	ends := r.Now
	switch {
	case r.IsFree():
	case len(r.Holders) == 1 && r.Holders[0].MaxHolders == 1 && r.Wanted.ID == "":
		h := r.Holders[0]
		c.State, c.ID, c.Label, c.Fence, ends = Held, h.ID, []byte(h.Label), int64(h.Fence), h.Ends
		if h.Released {
			c.State = Kept
		}
		if r.Done {
			c.State, c.Record = Done, append([]byte{}, r.Record...)
		}
	default:
		c.State, c.Sharing, ends = Shared, encode(r.Key), r.Ends()
	}
	c.Now, c.Ends = r.Now.UnixMicro(), ceilMicro(ends)
	c.ForgetDay = ForgetDay(c.Ends)
	return c
}

// ForgetDay returns the day since 1970 from which a row may be deleted that ends at a time.
func ForgetDay(ends int64) int64 { return ends/(24*time.Hour).Microseconds() + 2 }

// encode returns the column sharing. Labels in it are in base64: a JSON holds no bytes.
func encode(k holders.Key) []byte {
	k.Holders = slices.Clone(k.Holders)
	for i, h := range k.Holders {
		k.Holders[i].Label = base64.StdEncoding.EncodeToString([]byte(h.Label))
	}
	text, _ := json.Marshal(k) // cannot fail
	return text
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

// Micros returns a duration in whole microseconds, rounded up.
func Micros(d time.Duration) int64 {
	n := d / time.Microsecond
	if d%time.Microsecond > 0 {
		n++
	}
	return int64(n)
}
