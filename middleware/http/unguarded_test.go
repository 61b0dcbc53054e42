package guardhttp_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// A key, a scope or a part of a key that returns ErrUnguarded leaves the request out.
func TestUnguarded_requestsArePassedOn(t *testing.T) {
	t.Parallel()
	out := func(*http.Request) (string, error) { return "", fmt.Errorf("internal: %w", idempotency.ErrUnguarded) }
	for name, c := range map[string]struct {
		key  guardhttp.KeyFunc
		opts []guardhttp.Option
	}{
		"by the key":      {out, []guardhttp.Option{idempotency.WithGlobalKeys()}},
		"by the scope":    {guardhttp.IdempotencyKey, []guardhttp.Option{guardhttp.WithScope(out)}},
		"by a part":       {guardhttp.Join(guardhttp.IdempotencyKey, out), []guardhttp.Option{idempotency.WithGlobalKeys()}},
		"in shadow mode":  {out, []guardhttp.Option{idempotency.WithGlobalKeys(), idempotency.WithShadow()}},
		"although needed": {out, []guardhttp.Option{idempotency.WithGlobalKeys(), guardhttp.WithMethods(http.MethodPost)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen, runs := new(outcomeLog), 0
			idempotent, err := guardhttp.New(lifeGuard(t, memory.New()), c.key, append(c.opts, idempotency.WithObserver(seen.observer()))...)
			require.NoError(t, err)
			h := idempotent(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { runs++; w.WriteHeader(http.StatusCreated) }))
			for range 2 {
				require.Equal(t, http.StatusCreated, call(h, "/", "X-Tenant", "a").Code)
			}
			require.Equal(t, 2, runs)
			for _, o := range seen.await(t, 2) {
				require.Equal(t, idempotency.Untouched, o.Result)
				require.NoError(t, o.Err)
			}
		})
	}
}
