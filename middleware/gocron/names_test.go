package guardgocron_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
)

// Jobs that a loop makes without names have one name, and share a lock without a word. gocron asks
// with the context of the job.
func TestLocker_warnsOfJobsThatShareAName(t *testing.T) {
	t.Parallel()
	type ask struct {
		job, name string
		removed   bool // before it asks
	}
	for title, c := range map[string]struct {
		asks   []ask
		warned []string // names
	}{
		"one job, again and again":      {[]ask{{"a", "f", false}, {"a", "f", false}, {"a", "f", false}}, nil},
		"jobs with names":               {[]ask{{"a", "f-a", false}, {"b", "f-b", false}, {"a", "f-a", false}}, nil},
		"two jobs, once for each name":  {[]ask{{"a", "f", false}, {"b", "f", false}, {"c", "f", false}, {"a", "f", false}, {"b", "f", false}}, []string{"f"}},
		"two pairs":                     {[]ask{{"a", "f", false}, {"b", "f", false}, {"c", "g", false}, {"d", "g", false}}, []string{"f", "g"}},
		"a job in the place of another": {[]ask{{"a", "f", false}, {"b", "f", true}, {"b", "f", false}}, nil},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var warned []string
				hook := guard.Hook{Outcome: func(_ context.Context, o guard.Outcome) {
					require.Equal(t, []string{"gocron", "misconfigured", "gocron"}, []string{o.Adapter, o.Result, o.Name})
					warned = append(warned, o.Refused.Error())
				}}
				g, _ := guards(t, 1, guard.WithHook(hook))
				locker := newLocker(t, g[0])
				jobs := map[string]context.Context{}
				cancels := map[string]context.CancelFunc{}
				for _, a := range c.asks {
					if a.removed {
						for _, cancel := range cancels {
							cancel()
						}
					}
					if jobs[a.job] == nil {
						jobs[a.job], cancels[a.job] = context.WithCancel(t.Context())
					}
					lock, err := locker.Lock(jobs[a.job], a.name)
					require.NoError(t, err)
					require.NoError(t, lock.Unlock(t.Context()))
				}
				require.Len(t, warned, len(c.warned))
				for i, name := range c.warned {
					require.Contains(t, warned[i], `job "`+name+`": two jobs of this process have this name`)
					require.Contains(t, warned[i], "gocron.WithName")
				}
			})
		})
	}
}

func TestLocker_theErrorOfASharedNameSaysWhy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, _ := guards(t, 1)
		locker := newLocker(t, g[0])
		first, cancel := context.WithCancel(t.Context())
		defer cancel()
		second, cancel := context.WithCancel(t.Context())
		defer cancel()
		lock, err := locker.Lock(first, "f")
		require.NoError(t, err)
		_, err = locker.Lock(first, "f") // its own next tick
		require.ErrorIs(t, err, guard.ErrBusy)
		require.NotContains(t, err.Error(), "two jobs")
		for range 2 {
			_, err = locker.Lock(second, "f")
			require.ErrorIs(t, err, guard.ErrBusy)
			require.ErrorContains(t, err, "two jobs of this process have this name")
		}
		require.NoError(t, lock.Unlock(t.Context()))
	})
}
