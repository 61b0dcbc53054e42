package redisstore

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// EntriesOf implements driver.Ledger.
func (s *Store) EntriesOf(ctx context.Context, names []string, n int) ([][]driver.Entry, error) {
	all := make([][]driver.Entry, len(names))
	read, err := s.readAll(ctx, driver.OpLedger, names, func(p redis.Pipeliner, name string) redis.Cmder {
		return p.ZRevRangeWithScores(ctx, ledgerKey("log", name), 0, int64(n-1))
	})
	for i, cmd := range read {
		entries, _ := cmd.(*redis.ZSliceCmd)
		for _, e := range entries.Val() {
			record, _ := e.Member.(string)
			all[i] = append(all[i], driver.Entry{At: int64(e.Score), Record: []byte(record)})
		}
	}
	return all, err
}

// CountersOf implements driver.Ledger.
func (s *Store) CountersOf(ctx context.Context, names, counters []string) ([]int64, error) {
	all := make([]int64, len(names))
	i := -1
	read, err := s.readAll(ctx, driver.OpLedger, names, func(p redis.Pipeliner, name string) redis.Cmder {
		i++
		return p.HGet(ctx, ledgerKey("count", name), counters[i])
	})
	for i, cmd := range read {
		if n, isThere := cmd.(*redis.StringCmd); isThere && n.Err() == nil {
			if all[i], err = n.Int64(); err != nil {
				return nil, s.error(&Call{Op: driver.OpLedger, Key: names[i]}, ErrAnswer)
			}
		}
	}
	return all, err
}

// Begins reports for each key whether the string at its Redis key begins with a text.
func (s *Store) Begins(ctx context.Context, keys []string, name func(key string) string, with string) ([]bool, error) {
	all := make([]bool, len(keys))
	read, err := s.readAll(ctx, driver.OpInspect, keys, func(p redis.Pipeliner, key string) redis.Cmder {
		return p.GetRange(ctx, name(key), 0, int64(len(with)-1))
	})
	for i, cmd := range read {
		text, _ := cmd.(*redis.StringCmd)
		all[i] = text.Val() == with
	}
	return all, err
}

// Evals reports for each key whether a script answers 1 to its Redis key. The script's source goes
// along with each call, so it should be short.
func (s *Store) Evals(ctx context.Context, keys []string, source string) ([]bool, error) {
	all := make([]bool, len(keys))
	read, err := s.readAll(ctx, driver.OpInspect, keys, func(p redis.Pipeliner, key string) redis.Cmder {
		return p.Eval(ctx, source, []string{key})
	})
	for i, cmd := range read {
		answer, _ := cmd.(*redis.Cmd)
		all[i] = answer.Val() == int64(1)
	}
	return all, err
}

// readAll sends a command for each name in one pipeline. What is missing, or is of another type, is
// no error.
func (s *Store) readAll(
	ctx context.Context, op driver.Op, names []string, command func(redis.Pipeliner, string) redis.Cmder,
) ([]redis.Cmder, error) {
	pipeline := s.client.Pipeline()
	for _, name := range names {
		command(pipeline, name)
	}
	answered := make(chan []redis.Cmder, 1)
	err := bounded(ctx, func() error {
		read, err := pipeline.Exec(ctx)
		for _, cmd := range read {
			if err := cmd.Err(); err != nil && !errors.Is(err, redis.Nil) && !redis.HasErrorPrefix(err, "WRONGTYPE") {
				return err
			}
		}
		if len(read) == 0 && len(names) > 0 {
			return err
		}
		answered <- read
		return nil
	})
	if err != nil {
		return nil, s.error(&Call{Op: op, Key: names[0]}, err)
	}
	return <-answered, nil
}

// EntriesOf implements driver.Ledger.
func (l *Locker) EntriesOf(ctx context.Context, names []string, n int) ([][]driver.Entry, error) {
	return l.store.EntriesOf(ctx, names, n)
}

// CountersOf implements driver.Ledger.
func (l *Locker) CountersOf(ctx context.Context, names, counters []string) ([]int64, error) {
	return l.store.CountersOf(ctx, names, counters)
}
