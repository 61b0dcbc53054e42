package guard_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
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
		"a name":                  {[]guard.Option{guard.WithNamespace("billing")}, "billing::"},
		"a name, and then none":   {[]guard.Option{guard.WithNamespace("billing"), guard.WithoutNamespace()}, ""},
		"none, and then a name":   {[]guard.Option{guard.WithoutNamespace(), guard.WithNamespace("billing")}, "billing::"},
		"none, and an empty name": {[]guard.Option{guard.WithoutNamespace(), guard.WithNamespace("")}, ""},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			store := memory.New()
			g := newGuard(t, store, c.opts...)
			require.NoError(t, g.Do(t.Context(), "report", func(ctx context.Context) error {
				keys, _, err := store.Keys(ctx, "", "", 10)
				require.Equal(t, []string{c.want + "report"}, keys)
				return err
			}))
			lease := hold(t, g, "report", guard.WithoutNamespace())
			keys, _, err := store.Keys(t.Context(), "", "", 10)
			require.NoError(t, err)
			require.Equal(t, []string{"report"}, keys, "an option of a call replaces that of New")
			require.NoError(t, lease.Release(t.Context()))
		})
	}
}

// No key of a Guard without a namespace is one of a namespace, and no two namespaces share a key.
// What would be one is refused.
func TestNamespace_noKeyIsThatOfAnother(t *testing.T) {
	store := memory.New()
	guards := map[string]*guard.Guard{"": newGuard(t, store)}
	for _, namespace := range []string{"a", "b", "ab", "asynq", "http"} {
		guards[namespace] = newGuard(t, store, guard.WithNamespace(namespace))
	}
	keys := []string{
		"job", "b:job", "b::job", "b:::job", ":job", "::job", ":::job", "a:b::job", "ab", "a::b::job", "b::", "::", "asynq:charge::1", "::1", "http:::1",
	}
	held := map[string]string{} // by the key in the store, where it is from
	for namespace, g := range guards {
		for _, key := range keys {
			err := g.Do(t.Context(), key, func(ctx context.Context) error {
				lease, _ := guard.FromContext(ctx)
				stored, from := lease.Claims()[0].Key, fmt.Sprintf("%q in %q", key, namespace)
				require.Empty(t, held[stored], "%s is that of %s", stored, from)
				held[stored] = from
				return nil
			})
			var refused *guard.KeyError
			if of, _ := driver.SplitNamespace(key); namespace == "" && of != "" {
				require.ErrorAs(t, err, &refused, key)
				require.ErrorContains(t, err, fmt.Sprintf("WithNamespace(%q)", of))
				ledger, _ := g.Adapter().Ledger()
				require.ErrorAs(t, ledger.Append(t.Context(), key, driver.Entry{At: 1}, 1), &refused)
				continue
			}
			require.NoError(t, err, "%q in %q", key, namespace)
		}
	}
	require.Len(t, held, len(guards)*len(keys)-5, "five look like keys of a namespace")
}

func TestSplitNamespace_reversesJoinNamespace(t *testing.T) {
	for _, namespace := range []string{"", "b", "billing"} {
		for _, key := range []string{"job", ":job", "::job", "a:b", "a::b", ":", "::"} {
			if namespace == "" && strings.HasPrefix(key, "a::") {
				continue
			}
			of, rest := driver.SplitNamespace(driver.JoinNamespace(namespace, key))
			require.Equal(t, []string{namespace, key}, []string{of, rest})
		}
	}
}
