package guardcron_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/inspect"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// All processes of a job that is due each minute are down for half an hour.
func TestPause_whileNobodyIsUpIsNoAlarm(t *testing.T) {
	t.Parallel()
	for title, test := range map[string]struct {
		pause, resume string
		want          []string
	}{
		"before and still":     {"2026-06-15T12:01:30Z", "", []string{"12:01:00 ran", "12:02:00 skipped", "12:03:00-12:34:00 skipped"}},
		"before, and ended":    {"2026-06-15T12:01:30Z", "2026-06-15T12:20:30Z", []string{"12:01:00 ran", "12:02:00 skipped", "12:03:00-12:20:00 skipped", "12:21:00-12:34:00 missed"}},
		"meanwhile":            {"2026-06-15T12:10:30Z", "2026-06-15T12:20:30Z", []string{"12:01:00 ran", "12:02:00 ran", "12:03:00-12:10:00 missed", "12:11:00-12:20:00 skipped", "12:21:00-12:34:00 missed"}},
		"meanwhile, and still": {"2026-06-15T12:10:30Z", "", []string{"12:01:00 ran", "12:02:00 ran", "12:03:00-12:10:00 missed", "12:11:00-12:34:00 skipped"}},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			onSite(t, noon, func(s *site) {
				ctx := context.Background()
				admin := s.process("admin", setup{})
				p := s.process("a", setup{})
				p.add("job", "* * * * *", nil)
				p.cron.Start()
				turned := map[string]func() error{
					test.pause:  func() error { return admin.Pause(ctx, "job", 0, alice) },
					test.resume: func() error { return admin.Resume(ctx, "job", alice) },
				}
				delete(turned, "")
				steps := []string{"2026-06-15T12:02:30Z", "2026-06-15T12:34:30Z"}
				for at := range turned {
					steps = append(steps, at)
				}
				slices.Sort(steps)
				for _, at := range steps {
					s.until(at)
					switch {
					case turned[at] != nil:
						require.NoError(s.t, turned[at]())
					case at == "2026-06-15T12:02:30Z":
						p.end()
					default:
						p = s.process("b", setup{})
						p.add("job", "* * * * *", nil, guardcron.WithStartDeadline(20*time.Second))
						p.cron.Start()
						s.sleep(25 * time.Second)
					}
				}
				require.Equal(s.t, test.want, p.outcomes("job"))
			})
		})
	}
}

// With Wait, ticks wait for a long run when the job is paused.
func TestPause_holdsTicksThatAlreadyWait(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		p := s.process("a", setup{})
		p.add("job", "* * * * *", hanging(150*time.Second), guardcron.WithOverlap(guardcron.Wait), guardcron.WithStartDeadline(30*time.Minute))
		p.cron.Start()
		s.until("2026-06-15T12:02:30Z")
		require.NoError(s.t, p.Pause(context.Background(), "job", 0, alice))
		s.until("2026-06-15T12:05:30Z")
		require.NoError(s.t, p.Resume(context.Background(), "job", alice))
		s.until("2026-06-15T12:09:30Z")
		require.Equal(s.t, []string{"12:01:00 ran", "12:02:00 skipped", "12:03:00 skipped", "12:04:00 skipped", "12:05:00 skipped", "12:06:00 ran", "12:07:00 running"},
			p.outcomes("job"))
		s.sleep(time.Hour / 2)
	})
}

// What an operator changes is on record, whichever program asks for it.
func TestControl_putsChangesOnRecord(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		ctx := context.Background()
		p := s.process("a", setup{})
		p.add("job", "* * * * *", nil)
		require.NoError(s.t, p.Pause(ctx, "job", time.Hour, alice))
		require.NoError(s.t, p.Resume(ctx, "job", alice))
		require.ErrorContains(s.t, p.Pause(ctx, "job", 0, inspect.By{}), `job "job": `)
		require.Error(s.t, p.Trigger(ctx, "job", alice), "it is not announced yet")
		i, err := inspect.New(p.guard)
		require.NoError(s.t, err)
		operations, err := i.Operations(ctx, 10)
		require.NoError(s.t, err)
		require.Len(s.t, operations, 3, "and not what names nobody")
		for n, action := range []inspect.Action{inspect.ActionTrigger, inspect.ActionResume, inspect.ActionPause} {
			require.Equal(s.t, action, operations[n].Action)
			require.Equal(s.t, "job", operations[n].Job)
			require.Equal(s.t, "alice", operations[n].Actor)
		}
		require.Equal(s.t, time.Hour, operations[2].For)
		paused, err := p.Paused(ctx, "job")
		require.NoError(s.t, err)
		require.False(s.t, paused)
	})
}
