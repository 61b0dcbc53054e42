package backend_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
)

// channels name the channel on which a backend says that a key may be free.
var channels = map[string]func(key string) string{
	"single":    lockKeys["single"],
	"reentrant": func(key string) string { return "redisson_lock__channel:{" + key + "}" },
}

// The releases of reentrant that travelled with claims were once told on the fence counter of one
// of these, and those that travelled alone on the key of a lock: who waited in another process
// slept on for half a TTL.
func TestTogether_eachReleaseIsToldOnTheChannelOfItsKey(t *testing.T) {
	t.Parallel()
	for name := range backends {
		for _, claims := range []int{0, 1, 5} {
			t.Run(fmt.Sprintf("%s, with %d claims", name, claims), func(t *testing.T) {
				requireEachReleaseTold(t, name, claims)
			})
		}
	}
}

func requireEachReleaseTold(t *testing.T, backend string, claims int) {
	t.Helper()
	f, rdb := newFlight(t, backend)
	f.together(t, take("known 1", "id"), take("known 2", "id")) // the server knows the script
	f.together(t, give("known 1", "id"), give("known 2", "id"))
	for round := 0; ; round++ {
		key := func(n int) string { return fmt.Sprint("round ", round, " key ", n) }
		f.together(t, take(key(0), "id"), take(key(1), "id"), take(key(2), "id"), take(key(3), "id"))
		kept, done := give(key(1), "id"), give(key(2), "id")
		kept.after = guard.After{Keep: time.Hour}
		done.after = guard.After{Keep: time.Hour, Done: true, Record: []byte("record")}
		ops := []op{give(key(0), "id"), kept, done, give(key(3), "another")}
		want := []string{channels[backend](key(0)), channels[backend](key(1)), channels[backend](key(2))}
		for n := range claims {
			ops = append(ops, take(key(4+n), "id"))
		}

		heard := rdb.Subscribe(t.Context(), append(want, channels[backend](key(3)))...)
		for range 4 {
			_, err := heard.Receive(t.Context()) // the server says that we listen
			require.NoError(t, err)
		}
		_, sizes := f.fly(t, ops...)
		require.NoError(t, rdb.Publish(t.Context(), channels[backend](key(3)), "the end").Err())
		told := toldUntil(t, heard, "the end")
		require.NoError(t, heard.Close())
		require.ElementsMatch(t, want, told)
		if len(sizes) == 1 {
			return // they were one pipeline
		}
		require.Less(t, round, 10, "the ops never went out together")
	}
}

// toldUntil returns the channels on which something was said before that.
func toldUntil(t *testing.T, heard *redis.PubSub, last string) (told []string) {
	t.Helper()
	for {
		m, err := heard.ReceiveMessage(t.Context())
		require.NoError(t, err)
		if m.Payload == last {
			return told
		}
		told = append(told, m.Channel)
	}
}
