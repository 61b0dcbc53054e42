package guard_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
)

// Only adapters need a namespace. Of the two options, the last one counts.
func TestWithoutNamespace_doAndAcquireNeedNeither(t *testing.T) {
	t.Parallel()
	for title, c := range map[string]struct {
		opts []guard.Option
		want string
	}{
		"neither":                 {nil, ""},
		"WithoutNamespace":        {[]guard.Option{guard.WithoutNamespace()}, ""},
		"a name":                  {[]guard.Option{guard.WithNamespace("billing")}, "billing:"},
		"a name, and then none":   {[]guard.Option{guard.WithNamespace("billing"), guard.WithoutNamespace()}, ""},
		"none, and then a name":   {[]guard.Option{guard.WithoutNamespace(), guard.WithNamespace("billing")}, "billing:"},
		"none, and an empty name": {[]guard.Option{guard.WithoutNamespace(), guard.WithNamespace("")}, ""},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			store := memory.New()
			g, err := guard.New(store, c.opts...)
			require.NoError(t, err)
			defer func() { require.NoError(t, g.Close(context.Background())) }()
			require.NoError(t, g.Do(t.Context(), "report", func(ctx context.Context) error {
				keys, _, err := store.Keys(ctx, "", "", 10)
				require.Equal(t, []string{c.want + "report"}, keys)
				return err
			}))
			lease, err := g.Acquire(t.Context(), "report", guard.WithoutNamespace())
			require.NoError(t, err)
			keys, _, err := store.Keys(t.Context(), "", "", 10)
			require.NoError(t, err)
			require.Equal(t, []string{"report"}, keys, "an option of a call replaces that of New")
			require.NoError(t, lease.Release(t.Context()))
		})
	}
}
