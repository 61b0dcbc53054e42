package redisstore

import (
	"context"
	"reflect"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/backend/internal/contain"
	"github.com/seed-1795987d/onerun/backend/internal/rediserr"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// A client is a client of go-redis or one of its connections.
type client interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Pipeline() redis.Pipeliner
}

func checkClient(client redis.UniversalClient) error {
	refused := &driver.SettingError{Setting: "client", Reason: "must not be nil"}
	if client == nil {
		return refused
	}
	if v := reflect.ValueOf(client); v.Kind() == reflect.Pointer && v.IsNil() {
		return refused
	}
	if _, ok := client.(*redis.Ring); ok {
		refused.Value = "*redis.Ring"
		refused.Reason = "a Ring moves the keys of a shard to another one when it misses some heartbeats, " +
			"while the holder still holds: two would hold one key. Use its nodes with backend/redlock"
		return refused
	}
	return nil
}

// onlyByPool reports whether all connections must be those of the application's client.
//
// If Sentinel chooses the server, go-redis closes these when Sentinel names another one. The old
// one may live on, and accept what comes on other connections. Credentials that change reach only
// the client's connections. And without read deadlines there, a lane cannot have any (connections
// through SSH cannot).
func onlyByPool(app *redis.Client) bool {
	opt := app.Options()
	const noDeadlines = -1 // go-redis turns the -2 of a user into this
	return address(app) == behindSentinel || opt.StreamingCredentialsProvider != nil || opt.ReadTimeout == noDeadlines
}

func poolSize(client *redis.Client) int {
	opt := client.Options()
	if opt.MaxActiveConns > 0 {
		return min(opt.PoolSize, opt.MaxActiveConns)
	}
	return opt.PoolSize
}

// behindSentinel is the address of a server that is found through Sentinel.
const behindSentinel = "sentinel"

func address(client redis.UniversalClient) string {
	switch c := client.(type) {
	case *redis.Client:
		if addr := c.Options().Addr; addr != "FailoverClient" { // go-redis' name for Sentinel
			return addr
		}
		return behindSentinel
	case *redis.ClusterClient:
		return strings.Join(c.Options().Addrs, ",")
	}
	return ""
}

// bounded runs f and returns what it returns, or the error of ctx when that ends first: by default
// go-redis reads on when a context has ended, for as long as the client's own time-outs say. f then
// ends with those, and nothing looks at what it finds. If a hook of the client panics, that is the
// error.
func bounded(ctx context.Context, f func() error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	_, err := contain.Within(ctx, func() (struct{}, error) { return struct{}{}, rediserr.Recovered(f) })
	return err
}
