package postgres

import (
	"context"
	"encoding/json"
	"time"

	"github.com/seed-1795987d/onerun/backend/internal/holders"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// acquireShared makes any claim.
func (l *Locker) acquireShared(ctx context.Context, c driver.Claim) (grant driver.Answer, err error) {
	written, err := l.change(ctx, c.Key, func(r *row) effect {
		h := r.Find(c.ID)
		switch {
		case r.done:
			h = &r.Holders[0]
			grant = driver.Answer{
				State: driver.Done, Left: h.Ends.Sub(r.now), Record: r.record, Label: h.Label,
			}
			return nothing
		case h != nil && !h.Released:
			h.Ends = r.now.Add(c.TTL)
			grant = driver.Answer{
				State: driver.Granted, Fence: h.Fence, Seat: h.Seat, Held: true,
			}
			return changed
		case h != nil || !r.Admits(c):
			wanted := r.Wanted
			grant = r.Refuse(c, r.now)
			if wanted == r.Wanted {
				return nothing
			}
			return changed
		}
		clock := holders.Clock(r.now)
		last, known := r.last, r.last != 0
		if !known {
			last = clock + holders.Ahead - 1
		}
		wasWanted := r.Wanted.ID == c.ID
		grant, r.last = holders.Fence(c, last, known, clock)
		r.Add(c, &grant, r.now.Add(c.TTL))
		if wasWanted && c.MaxHolders > 1 {
			return joined // others were refused meanwhile
		}
		return granted
	})
	if err == nil && !written {
		return contested, nil
	}
	return grant, err
}

// renewShared renews any claim.
func (l *Locker) renewShared(ctx context.Context, c driver.Claim) (renewed bool, err error) {
	written, err := l.change(ctx, c.Key, func(r *row) effect {
		h := r.Find(c.ID)
		if h == nil || h.Released || r.done {
			renewed = false
			return nothing
		}
		h.Ends = r.now.Add(c.TTL)
		if c.Fence > h.Fence {
			h.Use(c.Fence, c.Reserve)
			r.last = max(r.last, h.Last)
		}
		renewed = true
		return changed
	})
	if err == nil && !written {
		err = errRaces
	}
	return renewed, err
}

// releaseShared releases any claim, or ends that it is wanted.
func (l *Locker) releaseShared(
	ctx context.Context, c driver.Claim, after driver.After,
) (released bool, err error) {
	written, err := l.change(ctx, c.Key, func(r *row) effect {
		h := r.Find(c.ID)
		switch {
		case h == nil:
			released = false
			if r.Wanted.ID != c.ID {
				return nothing
			}
			r.Remove(c.ID)
			return freed // others were refused meanwhile
		case h.Released: // and this release is repeated
			released = true
			return nothing
		case after.Keep <= 0:
			r.Remove(c.ID)
		default:
			h.Released, h.Ends = true, r.now.Add(after.Keep)
			if after.Done && h.MaxHolders == 1 {
				r.done, r.record, h.Label = true, after.Record, c.Label
				r.Wanted = holders.Wanted{} // the work is done
			}
		}
		released = true
		return freed
	})
	if err == nil && !written {
		err = errRaces
	}
	return released, err
}

// sharing is the column of that name.
type sharing struct {
	Holders []sharer `json:"holders,omitempty"`
	Wanted  *wanted  `json:"wanted,omitempty"`
}

// A sharer is a holder of a key. Times are microseconds since 1970.
type sharer struct {
	ID         string `json:"id"`
	MaxHolders int    `json:"among"`
	Fence      uint64 `json:"fence"`
	First      uint64 `json:"first"`
	Last       uint64 `json:"last"`
	Seat       int    `json:"seat,omitempty"`
	Label      []byte `json:"label,omitempty"`
	Kept       bool   `json:"kept,omitempty"`
	Ends       int64  `json:"ends"`
}

type wanted struct {
	ID         string `json:"id"`
	MaxHolders int    `json:"among"`
	Until      int64  `json:"until"`
}

// decode returns the holders of a row that has the column.
func decode(text []byte) (k holders.Key, err error) {
	var s sharing
	if err := json.Unmarshal(text, &s); err != nil {
		return k, err
	}
	for _, h := range s.Holders {
		k.Holders = append(k.Holders, holders.Holder{
			ID: h.ID, MaxHolders: h.MaxHolders, Fence: h.Fence, First: h.First, Last: h.Last, Seat: h.Seat,
			Label: string(h.Label), Released: h.Kept, Ends: time.UnixMicro(h.Ends),
		})
	}
	if w := s.Wanted; w != nil {
		k.Wanted = holders.Wanted{ID: w.ID, MaxHolders: w.MaxHolders, Until: time.UnixMicro(w.Until)}
	}
	return k, nil
}

func encode(k *holders.Key) ([]byte, error) {
	var s sharing
	for _, h := range k.Holders {
		s.Holders = append(s.Holders, sharer{
			ID: h.ID, MaxHolders: h.MaxHolders, Fence: h.Fence, First: h.First, Last: h.Last, Seat: h.Seat,
			Label: []byte(h.Label), Kept: h.Released, Ends: ceilMicro(h.Ends),
		})
	}
	if k.Wanted.ID != "" {
		s.Wanted = &wanted{k.Wanted.ID, k.Wanted.MaxHolders, ceilMicro(k.Wanted.Until)}
	}
	return json.Marshal(s)
}

// ceilMicro returns a time in microseconds since 1970, rounded up.
func ceilMicro(t time.Time) int64 { return t.Add(time.Microsecond - 1).UnixMicro() }
