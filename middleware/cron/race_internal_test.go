package guardcron

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/internal/ticks"
)

// The clock of a process is set back while it looks for what was missed before it started. Under
// the race detector, no goroutine reads when that was without the lock.
func TestBorn_isReadUnderItsLock(t *testing.T) {
	t.Parallel()
	for title, look := range map[string]func(b *job) error{
		"what was missed": func(b *job) error { return b.findMissed(known{own: &ticks.State{}}) },
		"runs by hand": func(b *job) error {
			b.write(entry{Record: Record{Result: Running, Start: b.now()}})
			return b.endRunsByHand()
		},
		"a tick of before": func(b *job) error {
			l := &looking{job: b, ctx: t.Context()}
			defer l.report()
			return l.at(pending{tick: b.now().Add(-time.Hour), left: true})
		},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			g, err := guard.New(memory.New(), guard.WithNamespace("test"))
			require.NoError(t, err)
			jobs, err := New(g, cron.New())
			require.NoError(t, err)
			schedule, err := cron.ParseStandard("0 * * * *")
			require.NoError(t, err)
			b, err := jobs.newJob("job", "", schedule, func(context.Context) error { return nil }, nil)
			require.NoError(t, err)
			now := b.now()
			b.born, b.seen = now.Add(time.Hour), now.Add(time.Hour)
			var both sync.WaitGroup
			both.Go(func() {
				b.mu.Lock()
				defer b.mu.Unlock()
				b.checkClock(now)
			})
			both.Go(func() { require.NoError(t, look(b)) })
			both.Wait()
			require.True(t, b.bornAt().Before(now))
			require.NoError(t, jobs.Close(t.Context()))
			require.NoError(t, g.Close(t.Context()))
		})
	}
}
