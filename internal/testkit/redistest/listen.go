package redistest

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// Listen subscribes to a channel. count returns how many messages were published since it was
// called last: it publishes one of its own, behind which none of them is.
func Listen(t testing.TB, rdb redis.UniversalClient, channel string) (count func() int) {
	t.Helper()
	listener := rdb.Subscribe(t.Context(), channel)
	t.Cleanup(func() { _ = listener.Close() })
	_, err := listener.Receive(t.Context())
	require.NoError(t, err)
	const last = "last"
	return func() (n int) {
		t.Helper()
		require.NoError(t, rdb.Publish(t.Context(), channel, last).Err())
		for {
			message, err := listener.ReceiveMessage(t.Context())
			require.NoError(t, err)
			if message.Payload == last {
				return n
			}
			n++
		}
	}
}
