package backend_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// channels name the channel on which a backend notifies that a key may be free.
var channels = map[string]func(key string) string{
	"single":    lockKeys["single"],
	"reentrant": func(key string) string { return "redisson_lock__channel:{" + key + "}" },
}

// reentrant once published releases on wrong channels. In a batch with claims, the channel was the
// fence counter of a claim. Otherwise, it was the key of a lock. Waiters in other processes then
// slept on for half a TTL.
func TestTogether_publishesEachReleaseOnTheChannelOfItsKey(t *testing.T) {
	t.Parallel()
	for name := range backends {
		for _, claims := range []int{0, 1, 5} {
			t.Run(fmt.Sprintf("%s, with %d claims", name, claims), func(t *testing.T) {
				requireEachReleasePublished(t, name, claims)
			})
		}
	}
}

func requireEachReleasePublished(t *testing.T, backend string, claims int) {
	t.Helper()
	f, rdb := newBatcher(t, backend)
	f.together(t, take("known 1", "id"), take("known 2", "id")) // the server knows the script
	f.together(t, give("known 1", "id"), give("known 2", "id"))
	for round := 0; ; round++ {
		key := func(n int) string { return fmt.Sprint("round ", round, " key ", n) }
		f.together(t, take(key(0), "id"), take(key(1), "id"), take(key(2), "id"), take(key(3), "id"))
		kept, done := give(key(1), "id"), give(key(2), "id")
		kept.after = driver.After{Keep: time.Hour}
		done.after = driver.After{Keep: time.Hour, Done: true, Record: []byte("record")}
		ops := []op{give(key(0), "id"), kept, done, give(key(3), "another")}
		want := []string{channels[backend](key(0)), channels[backend](key(1)), channels[backend](key(2))}
		for n := range claims {
			ops = append(ops, take(key(4+n), "id"))
		}

		messages := rdb.Subscribe(t.Context(), append(want, channels[backend](key(3)))...)
		for range 4 {
			_, err := messages.Receive(t.Context()) // the server confirms the subscription
			require.NoError(t, err)
		}
		_, sizes := f.send(t, ops...)
		require.NoError(t, rdb.Publish(t.Context(), channels[backend](key(3)), "the end").Err())
		published := channelsUntil(t, messages, "the end")
		require.NoError(t, messages.Close())
		require.ElementsMatch(t, want, published)
		if len(sizes) == 1 {
			return // they were one pipeline
		}
		require.Less(t, round, 10, "the ops never went out together")
	}
}

// channelsUntil returns the channels of the messages that arrive before last.
func channelsUntil(t *testing.T, messages *redis.PubSub, last string) (published []string) {
	t.Helper()
	for {
		m, err := messages.ReceiveMessage(t.Context())
		require.NoError(t, err)
		if m.Payload == last {
			return published
		}
		published = append(published, m.Channel)
	}
}
