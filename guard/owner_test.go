package guard_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

func TestOwner_isCarriedOnlyIfBothSidesAskForIt(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		owner := func(opts ...guard.Option) string {
			var name string
			require.NoError(t, g.Do(t.Context(), "downstream", func(ctx context.Context) error {
				lease, _ := guard.FromContext(ctx)
				name = lease.Owner()
				return nil
			}, opts...))
			return name
		}
		require.NoError(t, g.Do(t.Context(), "k", func(ctx context.Context) error {
			lease, _ := guard.FromContext(ctx)
			carried := httptest.NewRequest(http.MethodPost, "/", nil)
			silent := carried.Clone(ctx)
			guard.CarryOwner(ctx, carried.Header.Set)
			require.Equal(t, lease.Owner(), carried.Header.Get("Onerun-Owner"))
			require.Equal(t, lease.Owner(), owner(guard.WithOwnerFrom(carried.Header.Get)))
			require.NotEqual(t, lease.Owner(), owner(guard.WithOwnerFrom(silent.Header.Get)))
			require.NotEqual(t, lease.Owner(), owner())
			require.Equal(t, "importer", owner(guard.WithOwner("importer"), guard.WithOwnerFrom(nil)))
			require.Equal(t, "importer", owner(guard.WithOwner("importer"), guard.WithOwnerFrom(silent.Header.Get)))
			return nil
		}))
		headers := map[string]string{}
		guard.CarryOwner(t.Context(), func(name, owner string) { headers[name] = owner })
		require.Empty(t, headers, "without a lease, there is no owner to carry")
	})
}

func TestWithOwnerFrom_refusesABadOwner(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		for _, forged := range []string{strings.Repeat("x", 129), "a\nb", "\x00", "\x7f"} {
			err := g.Do(t.Context(), "k", nothing, guard.WithOwnerFrom(func(string) string { return forged }))
			require.Equal(t, "WithOwnerFrom", as[*guard.SettingError](t, err).Setting)
		}
		require.Zero(t, store.count(driver.OpAcquire))
	})
}
