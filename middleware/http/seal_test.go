package guardhttp_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// No part of an answer is readable in the store, and the answer is replayed nevertheless.
func TestSeal_hidesTheAnswer(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int{"AES-128": 16, "AES-192": 24, "AES-256": 32} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := contentRedis(t)
			secret := []byte(strings.Repeat("s", size))
			site := store.site(t, contentSetup{opts: []guardhttp.Option{idempotency.WithEncryption(idempotency.EncryptionKey{ID: "key-1", Secret: secret})}, handler: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "/PLAIN/location")
				w.WriteHeader(http.StatusCreated)
				_, _ = w.Write([]byte(strings.Repeat("PLAIN answer ", 100)))
			}})
			first := site.post(t, "PLAIN-key", "PLAIN body", contentHeader("X-Tenant", "PLAIN-scope"))
			all := recordAll(t, store.rdb)
			require.NotContains(t, all, "PLAIN")
			require.NotContains(t, all, "ocation")
			require.Contains(t, all, "key-1", "which key it was can be seen")
			site.post(t, "PLAIN-key", "PLAIN body", contentHeader("X-Tenant", "PLAIN-scope")).requireReplayOf(t, first)
			requireProblem(t, site.post(t, "PLAIN-key", "other", contentHeader("X-Tenant", "PLAIN-scope")), 422, idempotency.Mismatch)
			site.requireRan(t, 1)
		})
	}
}

// recordAll returns everything that is in a Redis.
func recordAll(t *testing.T, rdb *redis.Client) string {
	t.Helper()
	var all strings.Builder
	keys := rdb.Scan(t.Context(), 0, "*", 1000).Iterator()
	for keys.Next(t.Context()) {
		if strings.Contains(keys.Val(), ":probe:") { // of the backend, and soon gone
			continue
		}
		value, err := rdb.Get(t.Context(), keys.Val()).Result()
		require.NoError(t, err, "only texts are stored")
		fmt.Fprintln(&all, keys.Val(), value)
	}
	require.NoError(t, keys.Err())
	require.NotEmpty(t, all.String())
	return all.String()
}
