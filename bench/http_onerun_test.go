package bench

import (
	"context"
	"net/http"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
)

// guardedHTTP is the middleware over the single backend, with its defaults.
func guardedHTTP(b *testing.B, rdb *redis.Client, work http.Handler, _ answer) endpoint {
	g, err := guard.New(single.New(rdb), guard.WithNamespace("test"))
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, g.Close(context.Background())) })
	mw, err := guardhttp.New(g, guardhttp.IdempotencyKey,
		guardhttp.WithScope(func(*http.Request) (string, error) { return "tenant-1", nil }))
	require.NoError(b, err)
	h := mw(work)
	return endpoint{h, h}
}
