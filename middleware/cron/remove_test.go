package guardcron_test

import (
	"context"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

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

func TestRemove_ofAWrappedJobAndWhileItWaits(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		other := s.process("other", setup{})
		other.add("job", "* * * * *", hanging(10*time.Minute))
		other.cron.Start()
		s.until("2026-06-15T12:01:01Z")
		p := s.wrapped("* * * * *", nil, guardcron.WithBusy(guardcron.Wait), guardcron.WithStartDeadline(time.Hour))
		s.until("2026-06-15T12:02:10Z")
		require.NoError(s.t, p.Remove("job"))
		begun := time.Now()
		require.NoError(s.t, p.Close(context.Background()))
		require.Less(s.t, time.Since(begun), time.Second, "what waited for the job has left")
	})
}
