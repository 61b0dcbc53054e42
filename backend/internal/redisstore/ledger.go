package redisstore

import (
	"context"
	_ "embed"
	"strconv"

	"github.com/seed-1795987d/onerun/guard/driver"
)

var (
	//go:embed append.lua
	appendSource string
	//go:embed entries.lua
	entriesSource string
	//go:embed raise.lua
	raiseSource string

	appendEntry = NewScript(appendSource)
	entries     = NewScript(entriesSource)
	raise       = NewScript(raiseSource)
)

// ledgerKey returns the Redis key of a log (kind "log") or of counters (kind "count").
func ledgerKey(kind, name string) string {
	return "onerun:{" + slotTags()[Slot(name)] + "}:" + kind + ":" + name
}

// Append implements driver.Ledger.
func (s *Store) Append(ctx context.Context, name string, e driver.Entry, keep int) error {
	_, err := s.Int(ctx, Call{
		Op: driver.OpLedger, Key: name,
		Script: appendEntry, FurtherKeys: []string{ledgerKey("log", name)},
		FurtherArgs: []any{e.At, e.Record, keep, Milliseconds(driver.LedgerTTL)},
	})
	return err
}

// Entries implements driver.Ledger.
func (s *Store) Entries(ctx context.Context, name string, n int) ([]driver.Entry, error) {
	c := Call{
		Op: driver.OpLedger, Key: name,
		Script: entries, FurtherKeys: []string{ledgerKey("log", name)}, FurtherArgs: []any{n},
	}
	answer, err := s.run(ctx, &c)
	all, ok := toEntries(answer)
	switch {
	case err != nil:
		return nil, s.error(&c, err)
	case !ok:
		return nil, s.error(&c, ErrAnswer)
	}
	return all, nil
}

// toEntries reads the answer of entries.lua.
func toEntries(answer any) ([]driver.Entry, bool) {
	flat, ok := answer.([]any)
	if !ok || len(flat)%2 != 0 {
		return nil, false
	}
	all := make([]driver.Entry, 0, len(flat)/2)
	for i := 0; i < len(flat); i += 2 {
		record, isText := flat[i].(string)
		score, isText2 := flat[i+1].(string)
		at, err := strconv.ParseFloat(score, 64)
		if !isText || !isText2 || err != nil {
			return nil, false
		}
		all = append(all, driver.Entry{At: int64(at), Record: []byte(record)})
	}
	return all, true
}

// Raise implements driver.Ledger.
func (s *Store) Raise(ctx context.Context, name, counter string, to int64) (int64, error) {
	return s.Int(ctx, Call{
		Op: driver.OpLedger, Key: name,
		Script: raise, FurtherKeys: []string{ledgerKey("count", name)},
		FurtherArgs: []any{counter, to, Milliseconds(driver.CounterTTL(counter))},
	})
}
