package bench

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	guardgocron "github.com/seed-1795987d/onerun/middleware/gocron"
)

var (
	_ gocron.Locker  = (*guardgocron.Locker[gocron.Lock])(nil)
	_ gocron.Elector = (*guardgocron.Elector)(nil)
)

// Jobs that a loop makes run each at each tick if they have names. Without names, they share a
// lock, and the Locker says so once.
func TestGocronLocker_jobsThatALoopMakes(t *testing.T) {
	t.Parallel()
	for title, c := range map[string]struct {
		name   func(tenant string) []gocron.JobOption
		warned int
	}{
		"with names":    {func(tenant string) []gocron.JobOption { return []gocron.JobOption{gocron.WithName("report-" + tenant)} }, 0},
		"without names": {func(string) []gocron.JobOption { return nil }, 1},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var warned []error
			runs := map[string]int{}
			g, err := guard.New(memory.New(), guard.WithNamespace("test"), guard.WithHook(guard.Hook{Outcome: func(_ context.Context, o guard.Outcome) {
				mu.Lock()
				defer mu.Unlock()
				warned = append(warned, o.Refused)
			}}))
			require.NoError(t, err)
			locker, err := guardgocron.NewLocker[gocron.Lock](g, guard.WithMinHold(500*time.Millisecond))
			require.NoError(t, err)
			s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
			require.NoError(t, err)
			for _, tenant := range []string{"a", "b", "c"} {
				_, err = s.NewJob(gocron.CronJob("* * * * * *", true), gocron.NewTask(func() {
					mu.Lock()
					defer mu.Unlock()
					runs[tenant]++
				}), c.name(tenant)...)
				require.NoError(t, err)
			}
			s.Start()
			require.Eventually(t, func() bool {
				mu.Lock()
				defer mu.Unlock()
				return runs["a"]+runs["b"]+runs["c"] >= 3
			}, time.Minute, 10*time.Millisecond)
			time.Sleep(1500 * time.Millisecond) // more ticks
			require.NoError(t, s.Shutdown())
			require.NoError(t, g.Close(t.Context()))
			mu.Lock()
			defer mu.Unlock()
			require.Len(t, warned, c.warned)
			if c.warned == 0 {
				require.Len(t, runs, 3)
				return
			}
			require.ErrorContains(t, warned[0], "two jobs of this process have this name")
		})
	}
}
