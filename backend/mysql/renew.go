package mysql

import (
	"context"
	"slices"

	"github.com/seed-1795987d/onerun/backend/internal/sqlstore"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// Renew implements sqlstore.Dialect. A claim is renewed by one statement, and several by two, which
// pass over rows that others have locked. There is no transaction, see grant.
func (d *dialect) Renew(ctx context.Context, claims []driver.Claim) (answers []sqlstore.Renewal, err error) {
	byKey := map[string]driver.Claim{}
	for _, c := range claims {
		if known, ok := byKey[c.Key]; !ok || known.ID != c.ID || known.Fence <= c.Fence {
			byKey[c.Key] = c
		}
	}
	held := map[string]bool{} // by key
	if len(byKey) == 1 {
		c := claims[0]
		held[c.Key], err = d.renew(ctx, d.db, byKey[c.Key])
	} else {
		err = d.renewAll(ctx, byKey, held)
	}
	if err != nil && !isRace(err) {
		return nil, err
	}
	for _, c := range claims {
		ok := held[c.Key] && byKey[c.Key].ID == c.ID
		answers = append(answers, sqlstore.Renewal{Held: ok, Again: !ok}) // by itself, it may be
	}
	return answers, nil
}

func (d *dialect) renew(ctx context.Context, on execer, c driver.Claim) (held bool, err error) {
	fence, ttl := int64(c.Fence), sqlstore.Micros(c.TTL) //nolint:gosec // 63 bits
	n, err := d.exec(ctx, on, "renew", fence, fence+int64(max(c.Fences.Reserve, 0)), fence, ttl, ttl, c.Key, c.ID)
	return n > 0, err
}

// renewAll renews claims of several keys, and notes those that are held.
func (d *dialect) renewAll(ctx context.Context, byKey map[string]driver.Claim, held map[string]bool) error {
	keys := make([]string, 0, len(byKey))
	for key := range byKey {
		keys = append(keys, key)
	}
	slices.Sort(keys) // statements that lock in the same order have no deadlock
	for chunk := range slices.Chunk(keys, chunkSize) {
		if err := d.renewChunk(ctx, chunk, byKey, held); err != nil {
			return err
		}
	}
	return nil
}

func (d *dialect) renewChunk(ctx context.Context, keys []string, byKey map[string]driver.Claim, held map[string]bool) error {
	plain := map[int64][]string{} // by TTL
	var raised []driver.Claim     // with a later fence
	err := d.query(ctx, d.db, func(scan sqlstore.ScanFunc) error {
		var key, state, id string
		var fence int64
		var live bool
		if err := scan(&key, &state, &id, &fence, &live); err != nil {
			return err
		}
		switch c := byKey[key]; {
		case state != sqlstore.Held || id != c.ID || !live:
		case int64(c.Fence) > fence: //nolint:gosec // 63 bits
			raised = append(raised, c)
		default:
			ttl := sqlstore.Micros(c.TTL)
			plain[ttl] = append(plain[ttl], key)
		}
		return nil
	}, "lock", keys)
	if err != nil {
		return err
	}
	for ttl, keys := range plain {
		var holders []pair
		for _, key := range keys {
			holders = append(holders, pair{key, byKey[key].ID})
		}
		n, err := d.exec(ctx, d.db, "extend", ttl, ttl, keys, holders)
		if err != nil {
			return err
		}
		for _, key := range keys {
			held[key] = n == int64(len(keys)) // otherwise one of them has changed meanwhile
		}
	}
	for _, c := range raised {
		if held[c.Key], err = d.renew(ctx, d.db, c); err != nil {
			return err
		}
	}
	return nil
}
