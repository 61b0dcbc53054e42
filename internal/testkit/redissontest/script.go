package redissontest

import (
	"context"
	_ "embed"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed acquire.lua
	acquireSource string
	//go:embed unlock.lua
	unlockSource string
	//go:embed force_unlock.lua
	forceUnlockSource string
	//go:embed renew.lua
	renewSource string

	acquireScript     = script{redis.NewScript(acquireSource), false}
	unlockScript      = script{redis.NewScript(unlockSource), false}
	forceUnlockScript = script{redis.NewScript(forceUnlockSource), true}
	renewScript       = script{redis.NewScript(renewSource), true}
)

// script is a script and whether it is sent again when no answer came, then as often as go-redis
// has it.
type script struct {
	*redis.Script
	again bool
}

// eval sends EVALSHA and, if the server does not know the script, SCRIPT LOAD and EVALSHA again.
// Redisson loads it into one node of a Cluster, go-redis into all.
func (c *Client) eval(ctx context.Context, s script, keys []string, args ...any) *redis.Cmd {
	cmd := c.evalsha(ctx, s, keys, args)
	if !redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
		return cmd
	}
	if err := s.Load(ctx, c.rdb).Err(); err != nil {
		cmd.SetErr(err)
		return cmd
	}
	return c.evalsha(ctx, s, keys, args)
}

func (c *Client) evalsha(ctx context.Context, s script, keys []string, args []any) *redis.Cmd {
	all := []any{"evalsha", s.Hash(), len(keys)}
	for _, key := range keys {
		all = append(all, key)
	}
	cmd := redis.NewCmd(ctx, append(all, args...)...)
	if s.again {
		_ = c.rdb.Process(ctx, cmd) // the error is cmd's as well
	} else {
		_ = c.rdb.Process(ctx, noRetry{cmd})
	}
	return cmd
}

type noRetry struct{ redis.Cmder }

func (noRetry) NoRetry() bool { return true }
