package guardcron_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// These are the calls of a tick to the store. A process that is alone makes no others, and none
// between ticks.
func TestTick_uncontendedMakesFewCallsToTheStore(t *testing.T) {
	t.Parallel()
	const tick, run = `acquire "cron:job@2026-06-15T12:02:00Z"`, `acquire "cron:job"`
	for title, test := range map[string]struct {
		opts          []guardcron.Option
		takes         time.Duration
		before, after []string
	}{
		"Skip": {nil, 0, []string{tick, `counters "cron:job"`, run},
			[]string{`append "cron:job"`, `release "cron:job@2026-06-15T12:02:00Z"`, `release "cron:job"`, `raise "cron:job"`}},
		"Wait": {[]guardcron.Option{guardcron.WithOverlap(guardcron.Wait)}, 0, []string{tick, `counters "cron:job"`, run},
			[]string{`append "cron:job"`, `release "cron:job@2026-06-15T12:02:00Z"`, `release "cron:job"`, `raise "cron:job"`}},
		"Allow": {[]guardcron.Option{guardcron.WithOverlap(guardcron.Allow)}, 0, []string{tick, `counters "cron:job"`},
			[]string{`append "cron:job"`, `release "cron:job@2026-06-15T12:02:00Z"`, `raise "cron:job"`}},
		"a long run is on record while it runs": {nil, 5 * time.Second, []string{tick, `counters "cron:job"`, run},
			[]string{`append "cron:job"`, `append "cron:job"`, `release "cron:job@2026-06-15T12:02:00Z"`, `release "cron:job"`, `raise "cron:job"`}},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			onSite(t, noon, func(s *site) {
				p := s.process("a", setup{})
				var before []string
				p.add("job", "* * * * *", func(context.Context) error {
					before = p.line.asked()
					time.Sleep(test.takes) // virtual time
					return nil
				}, test.opts...)
				p.cron.Start()
				s.until("2026-06-15T12:01:30Z") // the first one of a new job is special
				p.line.asked()
				s.until("2026-06-15T12:02:30Z")
				require.Equal(s.t, test.before, before)
				require.Equal(s.t, test.after, p.line.asked())
				require.Equal(s.t, []string{"12:01:00 ran", "12:02:00 ran"}, p.outcomes("job"))
			})
		})
	}
}

// A process that finds a tick done asks once.
func TestTick_thatWasDoneElsewhereMakesOneCall(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		all := s.three(setup{}, "* * * * *", nil)
		s.until("2026-06-15T12:01:30Z")
		for _, p := range all {
			p.line.asked()
		}
		s.until("2026-06-15T12:02:30Z")
		require.Len(s.t, all[2].line.asked(), 7)
		for _, p := range all[:2] {
			require.Equal(s.t, []string{`acquire "cron:job@2026-06-15T12:02:00Z"`}, p.line.asked())
		}
	})
}

func (l *line) note(op, key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, fmt.Sprintf("%s %q", op, key))
}

// asked returns the calls to the store since it was last called, without renewals.
func (l *line) asked() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	calls := l.calls
	l.calls = nil
	return calls
}

var _ guard.Locker = (*line)(nil)
