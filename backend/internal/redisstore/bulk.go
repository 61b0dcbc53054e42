package redisstore

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/guard/driver"
)

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
