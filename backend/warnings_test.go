package backend_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/redlock"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

func TestWarnings_nameTheServerThatEvictsLeases(t *testing.T) {
	t.Parallel()
	backends := map[string]func(redis.UniversalClient) guard.Locker{
		"redlock": func(rdb redis.UniversalClient) guard.Locker {
			return redlock.New([]guard.Locker{
				single.New(rdb), single.New(redistest.Start(t).Client(t)), single.New(redistest.Start(t).Client(t)),
			})
		},
		"single": backends["single"], "reentrant": backends["reentrant"],
	}
	for name, open := range backends {
		for _, c := range []struct {
			limit, policy string
			evicts        bool
		}{
			{"0", "volatile-lru", false}, {"100mb", "noeviction", false},
			{"100mb", "allkeys-random", true},
		} {
			if name == "redlock" && !c.evicts {
				continue // it passes on what its nodes say
			}
			t.Run(name+"/"+c.policy+"/"+c.limit, func(t *testing.T) {
				server := redistest.Start(t)
				admin := server.Client(t)
				require.NoError(t, admin.ConfigSet(t.Context(), "maxmemory", c.limit).Err())
				require.NoError(t, admin.ConfigSet(t.Context(), "maxmemory-policy", c.policy).Err())
				warnings := make(chan error, 2)
				g, err := guard.New(open(server.Client(t)), guard.WithHook(guard.Hook{
					Warn: func(_ context.Context, err error) { warnings <- err },
				}))
				require.NoError(t, err)
				require.NoError(t, g.Do(t.Context(), "k", func(context.Context) error { return nil }))
				require.NoError(t, g.Close(t.Context())) // which waits for the answer
				if !c.evicts {
					require.Empty(t, warnings)
					return
				}
				require.Len(t, warnings, 1)
				warning := <-warnings
				require.ErrorContains(t, warning, server.Addr())
				require.ErrorContains(t, warning, c.policy)
				require.ErrorContains(t, warning, "noeviction")
			})
		}
	}
}

func TestWarnings_areEmptyForAUserWithoutPermission(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client(t)
	require.NoError(t, admin.ConfigSet(t.Context(), "maxmemory", "100mb").Err())
	require.NoError(t, admin.ConfigSet(t.Context(), "maxmemory-policy", "volatile-lru").Err())
	require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all", "-info").Err())
	rdb := server.Client(t, func(o *redis.Options) { o.Username, o.Password = "app", "secret" })
	require.Empty(t, single.New(rdb).Warnings(t.Context()))
}
