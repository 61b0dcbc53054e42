package bench

import (
	"context"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// connection are commands that no script calls; a name before a bar stands for all its
// subcommands. Redis counts what a script calls under the same names as what a client sends, so of
// the commands on keys only those count that the implementation is known to send.
// TestCommands_areThoseThatTheClientSent has an eye on that.
var connection = []string{
	"eval", "evalsha", "eval_ro", "evalsha_ro", "fcall", "script", "function", "multi", "exec", "wait", "client", "hello", "auth", "select", "info",
	"ping", "command", "cluster", "config", "subscribe", "unsubscribe", "psubscribe", "punsubscribe", "ssubscribe", "sunsubscribe",
}

// sent is how many of the calls came from clients.
func sent(calls map[string]int64, sends []string) (n int64) {
	for name, times := range calls {
		command, _, _ := strings.Cut(name, "|")
		if slices.Contains(connection, command) || slices.Contains(sends, command) {
			n += times
		}
	}
	return n
}

// counted begins to count commands, and returns what tells how many there were since.
func counted(t testing.TB, sends []string, servers []*redistest.Server) func() int64 {
	t.Helper()
	for _, s := range servers {
		s.ResetStats(t)
	}
	return func() int64 {
		var n int64
		for _, s := range servers {
			n += sent(s.Calls(t), sends)
		}
		return n
	}
}

// usec is the part of a line of INFO commandstats that says how long the server was at it.
var usec = regexp.MustCompile(`cmdstat_([^:]+):calls=\d+,usec=(\d+)`)

// busy returns for how long a server has been at what clients sent: its one thread for commands,
// without reading, parsing and writing.
func busy(t testing.TB, rdb *redis.Client, sends []string) (total time.Duration) {
	t.Helper()
	info, err := rdb.Info(context.Background(), "commandstats").Result()
	require.NoError(t, err)
	for _, m := range usec.FindAllStringSubmatch(info, -1) {
		if m[1] != "info" && sent(map[string]int64{m[1]: 1}, sends) > 0 {
			n, err := strconv.Atoi(m[2])
			require.NoError(t, err)
			total += time.Duration(n) * time.Microsecond
		}
	}
	return total
}

// trips counts what a go-redis client sends: commands, and how often it writes.
type trips struct{ commands, writes atomic.Int64 }

var _ redis.Hook = (*trips)(nil)

func (c *trips) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (c *trips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.commands.Add(1)
		c.writes.Add(1)
		return next(ctx, cmd)
	}
}

func (c *trips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.commands.Add(int64(len(cmds)))
		c.writes.Add(1)
		return next(ctx, cmds)
	}
}

func TestCommands_areThoseThatTheClientSent(t *testing.T) {
	server := redistest.Start(t)
	for _, i := range impls {
		if i.name == "rueidislock" {
			continue // it is not on go-redis: two scripts a pair, as its source says
		}
		t.Run(i.name, func(t *testing.T) {
			var c trips
			l, err := i.open(setup{addr: server.Addr(), ttl: ttl, hook: &c})
			require.NoError(t, err)
			defer l.close()
			key := keys()
			// connections, also ours, which take a moment, and scripts
			for made := time.Now(); time.Since(made) < time.Second; {
				require.NoError(t, pair(t.Context(), l, key(0), nothing))
			}
			count := counted(t, i.sends, []*redistest.Server{server})
			already := c.commands.Load()
			const pairs = 50
			for n := range pairs {
				require.NoError(t, pair(t.Context(), l, key(n), nothing))
			}
			require.Equal(t, c.commands.Load()-already, count(), server.Calls(t))
			require.EqualValues(t, 2*pairs, count())
		})
	}
}
