package guardcron_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

func TestRemove(t *testing.T) {
	t.Parallel()
	for title, remove := range map[string]func(t *testing.T, p *process, id cron.EntryID){
		"by Jobs":     func(t *testing.T, p *process, _ cron.EntryID) { require.NoError(t, p.Remove("job")) },
		"by the Cron": func(_ *testing.T, p *process, id cron.EntryID) { p.cron.Remove(id) },
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			onSite(t, noon, func(s *site) {
				ctx := context.Background()
				p := s.process("a", setup{})
				id := p.add("job", "* * * * *", hanging(20*time.Second))
				p.cron.Start()
				s.until("2026-06-15T12:02:10Z")
				remove(s.t, p, id)
				require.False(s.t, p.cron.Entry(id).Valid())
				require.EqualError(s.t, p.RunNow(ctx, "job"), `guardcron: there is no job "job"`)
				require.EqualError(s.t, p.Remove("job"), `guardcron: there is no job "job"`)
				s.until("2026-06-15T12:04:30Z")
				require.Equal(s.t, []string{"12:01:00 ran", "12:02:00 ran"}, p.outcomes("job"), "a run that has begun continues")
				p.add("job", "30 * * * *", nil)
				require.NoError(s.t, p.RunNow(ctx, "job"))
				s.until("2026-06-15T12:30:30Z")
				require.Equal(s.t, []string{"12:01:00 ran", "12:02:00 ran", "by hand ran", "12:30:00 ran"}, p.outcomes("job"))
				require.NoError(s.t, p.Close(ctx))
			})
		})
	}
}

func TestRemove_whileItWaits(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		other := s.process("other", setup{})
		other.add("job", "* * * * *", hanging(10*time.Minute))
		other.cron.Start()
		s.until("2026-06-15T12:01:01Z")
		p := s.process("p", setup{skew: 900 * time.Millisecond})
		p.add("job", "* * * * *", nil, guardcron.WithOverlap(guardcron.Wait), guardcron.WithStartDeadline(time.Hour))
		p.cron.Start()
		s.until("2026-06-15T12:02:10Z")
		require.NoError(s.t, p.Remove("job"))
		begun := time.Now()
		require.NoError(s.t, p.Close(context.Background()))
		require.Less(s.t, time.Since(begun), time.Second, "what waited for the job has left")
	})
}

// Jobs is safe for concurrent use: what is removed while it is added leaves no entry in the Cron.
func TestRemove_whileTheJobIsAdded(t *testing.T) {
	t.Parallel()
	for title, starts := range map[string]func(c *cron.Cron){"started": (*cron.Cron).Start, "not started": func(*cron.Cron) {}} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			g, err := guard.New(memory.New(), inNamespace...)
			require.NoError(t, err)
			c := cron.New()
			starts(c)
			jobs, err := guardcron.New(g, c)
			require.NoError(t, err)
			t.Cleanup(func() {
				<-c.Stop().Done()
				require.NoError(t, jobs.Close(context.Background()))
				require.NoError(t, g.Close(context.Background()))
			})
			const times = 60
			var added atomic.Bool
			var both sync.WaitGroup
			both.Go(func() {
				defer added.Store(true)
				for range times {
					_, err := jobs.AddFunc("job", "0 3 29 2 *", none)
					for err != nil { // the other one has yet to remove it
						_, err = jobs.AddFunc("job", "0 3 29 2 *", none)
					}
				}
			})
			removed := 0
			for !added.Load() || removed < times {
				if jobs.Remove("job") == nil {
					removed++
				}
			}
			both.Wait()
			require.Equal(t, times, removed)
			require.Empty(t, c.Entries())
		})
	}
}

func TestJobs_areSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	g, err := guard.New(memory.New(), inNamespace...)
	require.NoError(t, err)
	c := cron.New(cron.WithSeconds())
	jobs, err := guardcron.New(g, c)
	require.NoError(t, err)
	guardcron.SetClock(jobs, time.Hour) // it is right soon
	_, err = jobs.AddFunc("job", "* * * * * *", none, guardcron.WithCatchUp(10))
	require.NoError(t, err)
	ctx := t.Context()
	var all sync.WaitGroup
	all.Go(c.Start)
	all.Go(func() {
		_ = jobs.RunNow(ctx, "job")
		time.Sleep(time.Second) // until the Cron has begun
		guardcron.SetClock(jobs, 0)
	})
	all.Go(func() {
		for range 20 {
			_, err := jobs.List(ctx)
			require.NoError(t, err)
			_ = jobs.Remove("nothing")
		}
	})
	all.Wait()
	require.Eventually(t, func() bool {
		records, err := jobs.Records(ctx, "job", 100)
		return err == nil && len(records) > 6
	}, procSoon, 10*time.Millisecond)
	<-c.Stop().Done()
	require.NoError(t, jobs.Close(context.Background()))
	require.NoError(t, g.Close(context.Background()))
}
