package guard_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
)

func TestOwner_isCarriedOnlyIfBothSidesAsk(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		owner := func(opts ...guard.Option) string {
			var of string
			require.NoError(t, g.Do(t.Context(), "downstream", func(ctx context.Context) error {
				lease, _ := guard.FromContext(ctx)
				of = lease.Owner()
				return nil
			}, opts...))
			return of
		}
		require.NoError(t, g.Do(t.Context(), "k", func(ctx context.Context) error {
			lease, _ := guard.FromContext(ctx)
			carried := httptest.NewRequest(http.MethodPost, "/", nil)
			silent := carried.Clone(ctx)
			guard.CarryOwner(ctx, carried.Header.Set)
			require.Equal(t, lease.Owner(), carried.Header.Get(guard.OwnerHeader))
			require.Equal(t, lease.Owner(), owner(guard.JoinOwner(carried.Header.Get)))
			require.NotEqual(t, lease.Owner(), owner(guard.JoinOwner(silent.Header.Get)))
			require.NotEqual(t, lease.Owner(), owner())
			require.Equal(t, "importer", owner(guard.WithOwner("importer"), guard.JoinOwner(silent.Header.Get)))
			return nil
		}))
		headers := map[string]string{}
		guard.CarryOwner(t.Context(), func(name, owner string) { headers[name] = owner })
		require.Empty(t, headers, "without a lease there is nothing to carry")
	})
}

func TestJoinOwner_refusesWhatNoOwnerIs(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		for _, forged := range []string{strings.Repeat("x", 129), "a\nb", "\x00", "\x7f"} {
			err := g.Do(t.Context(), "k", nothing, guard.JoinOwner(func(string) string { return forged }))
			var refused *guard.SettingError
			require.ErrorAs(t, err, &refused)
			require.Equal(t, "JoinOwner", refused.Setting)
		}
		require.Zero(t, store.count(guard.OpAcquire))
	})
}
