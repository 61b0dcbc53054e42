package embedded_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/examples/internal/embedded"
)

func TestDB_writesAlsoIfTheFunctionFails(t *testing.T) {
	db := embedded.Open(1)
	defer db.Close()
	failed := errors.New("failed")
	require.NoError(t, db.Update(func(n *int) error { *n += 1; return nil }))
	require.ErrorIs(t, db.Update(func(n *int) error { *n += 1; return failed }), failed)
	require.Equal(t, 3, db.Read())
}

// A lease of a dead process would never end in a server whose time stands still.
func TestRedis_letsKeysExpire(t *testing.T) {
	addr, stop := embedded.Redis()
	defer stop()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	require.NoError(t, rdb.Set(t.Context(), "key", "value", 50*time.Millisecond).Err())
	require.Eventually(t, func() bool {
		n, err := rdb.Eval(t.Context(), "return redis.call('exists', KEYS[1])", []string{"key"}).Int()
		return err == nil && n == 0
	}, 10*time.Second, 10*time.Millisecond)
}
