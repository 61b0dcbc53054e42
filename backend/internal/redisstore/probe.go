package redisstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// probeKeys is how many keys a probe has: on how many servers they are is not known.
	probeKeys = 32
	// probeTTL is how long keys last that a proxy has put on a server where they cannot be found.
	probeTTL = 10 * time.Second
	// firstRetry and lastRetry bound the time after which a probe that has failed is made again.
	firstRetry, lastRetry = time.Second, time.Minute
)

// errProbe says that a probe has proved nothing. The connection is sound.
const errProbe refusal = "the server has lost the keys of a probe, or has answered too late"

// probeSource sets all keys of a probe. KEYS: those. ARGV: their TTL in ms. Some proxies accept
// only such keys.
var probeSource = sync.OnceValue(func() string {
	var b strings.Builder
	for i := range probeKeys {
		fmt.Fprintf(&b, "redis.call('SET', KEYS[%d], '', 'PX', ARGV[1])\n", i+1)
	}
	return b.String() + "return 1\n"
})

// takeSource deletes a key. KEYS: that. Answers 1, or 0 if there was none.
const takeSource = "return redis.call('DEL', KEYS[1])"

// takesTogether asks which keys the server takes in one script. A proxy between the client and
// several servers may send a script to the server of its first key. The other leases would then be
// on a server on which nobody looks for them.
func takesTogether(ctx context.Context, client client) (keyMode, error) {
	began, random := time.Now(), rand.Text()
	args := []any{eval, probeSource(), probeKeys}
	takes := make([]noRetry, probeKeys)
	for i, tag := range spreadTags(probeKeys) {
		key := "onerun:{" + tag + "}:probe:" + random
		args = append(args, key)
		takes[i].Cmder = redis.NewCmd(ctx, eval, takeSource, 1, key)
	}
	set := redis.NewCmd(ctx, append(args, Milliseconds(probeTTL))...)
	switch err := client.Process(ctx, &noRetry{set}); {
	case keysApart(err):
		return oneSlot, nil
	case err != nil:
		return 0, err
	}
	pipe := client.Pipeline()
	for i := range takes {
		_ = pipe.Process(ctx, &takes[i])
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return 0, err
	}
	there := 0
	for _, take := range takes {
		if n, _ := take.Cmder.(*redis.Cmd).Int(); n == 1 {
			there++
		}
	}
	first, _ := takes[0].Cmder.(*redis.Cmd).Int()
	switch {
	case there == probeKeys:
		return 0, nil
	case first == 0, time.Since(began) > probeTTL/2:
		return 0, errProbe
	default:
		return oneCall | firstKey, nil
	}
}
