package inspect_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/inspect"
)

func TestNamespaces_andWhereAKeyIsElsewhere(t *testing.T) {
	t.Parallel()
	store := memory.New()
	open := func(opts ...guard.Option) (*guard.Guard, *inspect.Inspector) {
		g, err := guard.New(store, opts...)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
		i, err := inspect.New(g)
		require.NoError(t, err)
		return g, i
	}
	billing, ofBilling := open(guard.WithNamespace("billing"))
	_, ofShop := open(guard.WithNamespace("shop"))
	none, ofNone := open(guard.WithoutNamespace())
	hold := func(g *guard.Guard, key string) {
		l, err := g.Acquire(t.Context(), key)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, l.Release(context.Background())) })
	}
	hold(billing, "report")
	hold(billing, "nightly:report")
	hold(billing, "cron:job")
	hold(none, "export")
	hold(none, "cron:job")

	require.Equal(t, []string{"billing", "shop", ""}, []string{ofBilling.Namespace(), ofShop.Namespace(), ofNone.Namespace()})
	for _, i := range []*inspect.Inspector{ofBilling, ofShop, ofNone} {
		all, more, err := i.Namespaces(t.Context())
		require.NoError(t, err)
		require.False(t, more)
		require.Equal(t, []inspect.Namespace{{"", 2}, {"billing", 3}}, all)
	}
	for _, c := range []struct {
		from *inspect.Inspector
		key  string
		want []string
	}{
		{ofShop, "report", []string{"billing"}},
		{ofNone, "report", []string{"billing"}},
		{ofBilling, "report", nil}, // it is here
		{ofShop, "export", []string{""}},
		{ofShop, "cron:job", []string{"", "billing"}},
		{ofNone, "cron:job", []string{"billing"}},
		{ofNone, "nightly:report", []string{"billing"}},
		{ofNone, "job", nil},
		{ofNone, "unknown", nil},
	} {
		places, err := c.from.Elsewhere(t.Context(), c.key)
		require.NoError(t, err)
		var got []string
		for _, p := range places {
			require.Equal(t, c.key, p.Name)
			require.Equal(t, driver.KeyHeld, p.State())
			got = append(got, p.Namespace)
		}
		require.Equal(t, c.want, got, "%s from %q", c.key, c.from.Namespace())
	}
}
