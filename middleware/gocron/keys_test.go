package guardgocron_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/adaptertest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	guardgocron "github.com/seed-1795987d/onerun/middleware/gocron"
)

func TestKeys_arePagesKeys(t *testing.T) {
	t.Parallel()
	store := adaptertest.NewKeyStore()
	lock, err := newLocker(t, store.NewGuard(t)).Lock(t.Context(), "report")
	require.NoError(t, err)
	require.NoError(t, lock.Unlock(t.Context()))
	store.Check(t, "../../docs/cron.md", "guardgocron", map[string]string{"JOB": "report"})
}

// The lock of a job is where gocron-redis-lock has it, whatever the namespace and the job are. A
// mistake in the namespace is an error: such a lock would exclude nobody.
func TestPlainKeys_theJobIsTheWholeName(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	for _, c := range []struct {
		namespace, given, job string
		refused               bool
	}{
		{"", "", "report", false},
		{"billing", "billing", "report", false},
		{"billing", "billing", "gocron:report", false},
		{"billing", "billing", "main.main.func1", false},
		{"gocron", "gocron", "gocron:report", false},
		{"", "", "a:gocron:report", false},
		{"billing", "shop", "report", true},
		{"billing", "", "report", true},
		{"", "billing", "report", true},
	} {
		option := guard.WithNamespace(c.namespace)
		if c.namespace == "" {
			option = guard.WithoutNamespace()
		}
		g, err := guard.New(single.New(rdb, single.WithPlainKeys(guardgocron.PlainKeys(c.given))), option)
		require.NoError(t, err)
		lock, err := newLocker(t, g).Lock(t.Context(), c.job)
		if c.refused {
			var bad *guard.KeyError
			require.ErrorAs(t, err, &bad, c)
			require.ErrorContains(t, err, "WithPlainKeys")
		} else {
			require.NoError(t, err, c)
			require.EqualValues(t, 1, rdb.Exists(t.Context(), c.job).Val(), c)
			require.NoError(t, lock.Unlock(t.Context()))
		}
		lease, err := g.Acquire(t.Context(), "of another kind")
		require.NoError(t, err)
		require.NoError(t, lease.Release(t.Context()))
		require.NoError(t, g.Close(t.Context()))
	}
}
