package redisstore

import (
	"context"
	_ "embed"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/guard/driver"
)

var (
	//go:embed append.lua
	appendSource string
	//go:embed raise.lua
	raiseSource string

	appendEntry = NewScript(appendSource)
	raise       = NewScript(raiseSource)
)

// ledgerKey returns the Redis key of a log (kind "log") or of counters (kind "count").
func ledgerKey(kind, name string) string {
	return "onerun:{" + slotTags()[Slot(name)] + "}:" + kind + ":" + name
}

// Append implements driver.Ledger.
func (l *Locker) Append(ctx context.Context, name string, e driver.Entry, keep int) error {
	_, err := l.store.integer(ctx, Call{
		Op: driver.OpLedger, Key: name,
		Script: appendEntry, FurtherKeys: []string{ledgerKey("log", name)},
		FurtherArgs: []any{e.At, e.Record, keep, Milliseconds(driver.LedgerTTL)},
	})
	return err
}

// EntriesOf implements driver.Ledger.
func (l *Locker) EntriesOf(ctx context.Context, names []string, n int) ([][]driver.Entry, error) {
	return readEach(ctx, l.store, driver.OpLedger, names, func(p redis.Pipeliner, i int) *redis.ZSliceCmd {
		return p.ZRevRangeWithScores(ctx, ledgerKey("log", names[i]), 0, int64(n-1))
	}, func(cmd *redis.ZSliceCmd) (log []driver.Entry, _ error) {
		for _, e := range cmd.Val() {
			record, _ := e.Member.(string)
			log = append(log, driver.Entry{At: int64(e.Score), Record: []byte(record)})
		}
		return log, cmd.Err()
	})
}

// CountersOf implements driver.Ledger.
func (l *Locker) CountersOf(ctx context.Context, names, counters []string) ([]int64, error) {
	return readEach(ctx, l.store, driver.OpLedger, names, func(p redis.Pipeliner, i int) *redis.StringCmd {
		return p.HGet(ctx, ledgerKey("count", names[i]), counters[i])
	}, func(cmd *redis.StringCmd) (int64, error) {
		if cmd.Err() == nil {
			n, err := cmd.Int64()
			if err != nil {
				err = ErrAnswer
			}
			return n, err
		}
		return 0, nil // it was never raised
	})
}

// Raise implements driver.Ledger.
func (l *Locker) Raise(ctx context.Context, name, counter string, to int64) (int64, error) {
	return l.store.integer(ctx, Call{
		Op: driver.OpLedger, Key: name,
		Script: raise, FurtherKeys: []string{ledgerKey("count", name)},
		FurtherArgs: []any{counter, to, Milliseconds(driver.CounterTTL(counter))},
	})
}
