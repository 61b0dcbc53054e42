package bench

import (
	"context"
	"crypto/rand"
	"net/http"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// BenchmarkHTTPGuard is what keeping out of each other's way costs an empty handler whose key is
// known, with nobody else at it: the key is a header, nothing else is read of the request, and
// nothing is kept of the answer. raw is the two round trips by hand, and the floor keeps fences.
func BenchmarkHTTPGuard(b *testing.B) {
	server := redistest.Start(b)
	makeCounters(b, server.Client(b))
	for _, i := range []httpImpl{{"raw", excludedByHand}, {"onerun", excluded}, {"fenced-floor", excludedByFloor}} {
		b.Run("impl="+i.name+"/g=1", func(b *testing.B) {
			e := i.around(b, server.Client(b), noContent, noContent)
			b.ReportAllocs()
			firsts(b, 1, e, noContent, nil)
		})
	}
}

func excludedByHand(b *testing.B, rdb *redis.Client, work http.Handler, _ answer) endpoint {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		const token = "token"
		ctx, key := r.Context(), r.Header.Get("Idempotency-Key")
		if ok, err := rdb.SetNX(ctx, key, token, ttl).Result(); err != nil || !ok {
			b.Error("claimed: ", ok, err)
			return
		}
		work.ServeHTTP(w, r)
		if err := deleteOwn.Run(ctx, rdb, []string{key}, token).Err(); err != nil {
			b.Error(err)
		}
	})
	return endpoint{first: h}
}

func excludedByFloor(b *testing.B, rdb *redis.Client, work http.Handler, _ answer) endpoint {
	l := lonelyFloor{onGoRedis{rdb}, rand.Text()}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Idempotency-Key")
		if _, err := l.take(r.Context(), key); err != nil {
			b.Error("claimed: ", err)
			return
		}
		work.ServeHTTP(w, r)
		if err := l.give(r.Context(), key, nil); err != nil {
			b.Error(err)
		}
	})
	return endpoint{first: h}
}

func excluded(b *testing.B, rdb *redis.Client, work http.Handler, _ answer) endpoint {
	g, err := guard.New(single.New(rdb), guard.WithNamespace("test"))
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, g.Close(context.Background())) })
	mw, err := guardhttp.New(g, guardhttp.FromHeader("Idempotency-Key"), idempotency.WithGlobalKeys(),
		idempotency.WithMode(idempotency.Exclusive), guardhttp.WithFingerprint(nil))
	require.NoError(b, err)
	return endpoint{first: mw(work)}
}
