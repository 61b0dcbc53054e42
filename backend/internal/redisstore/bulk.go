package redisstore

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// Begins reports for each key whether the string at its Redis key begins with a text.
func (s *Store) Begins(ctx context.Context, keys []string, name func(key string) string, with string) ([]bool, error) {
	return readEach(ctx, s, driver.OpInspect, keys, func(p redis.Pipeliner, i int) *redis.StringCmd {
		return p.GetRange(ctx, name(keys[i]), 0, int64(len(with)-1))
	}, func(cmd *redis.StringCmd) (bool, error) { return cmd.Val() == with, nil })
}

// Evals reports for each key whether a script answers 1 to its Redis key. The script's source goes
// along with each call, so it should be short.
func (s *Store) Evals(ctx context.Context, keys []string, source string) ([]bool, error) {
	return readEach(ctx, s, driver.OpInspect, keys, func(p redis.Pipeliner, i int) *redis.Cmd {
		return p.Eval(ctx, source, keys[i:i+1])
	}, func(cmd *redis.Cmd) (bool, error) { return cmd.Val() == int64(1), nil })
}

// readEach sends a command for each name in one pipeline, and returns what read makes of the
// answers. What is missing, or is of another type, is no error.
func readEach[C redis.Cmder, T any](
	ctx context.Context, s *Store, op driver.Op, names []string,
	command func(p redis.Pipeliner, i int) C, read func(C) (T, error),
) ([]T, error) {
	pipeline := s.client.Pipeline()
	commands := make([]C, len(names))
	for i := range names {
		commands[i] = command(pipeline, i)
	}
	err := bounded(ctx, func() error {
		sent, err := pipeline.Exec(ctx)
		for _, cmd := range sent {
			if err := cmd.Err(); err != nil && !errors.Is(err, redis.Nil) && !redis.HasErrorPrefix(err, "WRONGTYPE") {
				return err
			}
		}
		if len(sent) == 0 && len(names) > 0 {
			return err
		}
		return nil
	})
	if err != nil {
		return nil, s.error(&Call{Op: op, Key: names[0]}, err)
	}
	all := make([]T, len(names))
	for i, cmd := range commands {
		if all[i], err = read(cmd); err != nil {
			return nil, s.error(&Call{Op: op, Key: names[i]}, err)
		}
	}
	return all, nil
}
