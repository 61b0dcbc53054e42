package guardcron_test

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// A deployment changes the spec of a job: a process with the old one starts, ends, starts and ends,
// and one with the new one starts, ends, starts, ends and starts, in each order.
const oldSpec, newSpec = "*/7 * * * *", "*/10 * * * *"

// orders returns all orders of so many starts and ends of the two, "o" and "n", that begin with the
// old one.
func orders(olds, news int) []string {
	switch {
	case olds < 0 || news < 0:
		return nil
	case olds+news == 0:
		return []string{""}
	}
	var all []string
	for _, before := range orders(olds-1, news) {
		all = append(all, before+"o")
	}
	for _, before := range orders(olds, news-1) {
		all = append(all, before+"n")
	}
	return slices.DeleteFunc(all, func(order string) bool { return order[0] != 'o' })
}

// A rollout is one that is under way.
type rollout struct {
	*site
	opts    []guardcron.Option
	takes   time.Duration // a run
	crashes bool
	up      map[string]*process
	spans   map[string][]span // when a process with the spec was up

	mu       sync.Mutex
	reported map[time.Time]string // what observers were notified of
	ran      map[time.Time]int
}

// next starts the process with the spec, or ends it.
func (r *rollout) next(spec string) {
	spans := r.spans[spec]
	if p := r.up[spec]; p != nil {
		if r.crashes {
			p.die()
		} else {
			p.end()
		}
		delete(r.up, spec)
		spans[len(spans)-1].to = r.now()
		return
	}
	p := r.process(fmt.Sprint(spec, " ", len(spans)), setup{guard: []guard.Option{guard.WithNamespace("test"), guard.WithTTL(5 * time.Second)}})
	_, err := p.AddFunc("job", spec, func(ctx context.Context) error {
		err := lasting(r.takes)(ctx)
		tick, _ := guardcron.Tick(ctx)
		if err == nil && !p.line.cut.Load() { // it does not live on if it was killed
			r.mu.Lock()
			r.ran[tick]++
			r.mu.Unlock()
		}
		return err
	}, append(slices.Clone(r.opts), guardcron.WithObserver(func(record guardcron.Record) { r.observe(spec, record) }))...)
	require.NoError(r.t, err)
	p.cron.Start()
	r.up[spec] = p
	r.spans[spec] = append(spans, span{spec: spec, from: r.now(), to: r.now().AddDate(1, 0, 0)})
}

func (r *rollout) observe(spec string, record guardcron.Record) {
	if record.Result == guardcron.Ran || record.Result == guardcron.Unavailable {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for at := range ticksBetween(r.t, spec, record) {
		r.reported[at] = string(record.Result)
	}
}

// ticksBetween returns the ticks that a record is of.
func ticksBetween(t *testing.T, spec string, r guardcron.Record) iter.Seq[time.Time] {
	schedule := parsed(t, spec)
	return func(yield func(time.Time) bool) {
		for at := r.Tick; yield(at) && at.Before(r.Until); {
			at = schedule.Next(at)
		}
	}
}

// check requires that each tick that counts has one outcome, and no tick was run twice. Those for
// which no process was up are run or missed, as runs says.
func (r *rollout) check(runs []bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	replaced := r.spans[newSpec][0].from
	for spec, spans := range r.spans {
		schedule := parsed(r.t, spec)
		for tick := schedule.Next(spans[0].from); tick.Before(r.now().Add(-3 * time.Minute)); tick = schedule.Next(tick) {
			outcome := r.reported[tick]
			if n := r.ran[tick]; n > 0 {
				require.Equal(r.t, 1, n, "%q at %v", spec, tick)
				require.NotEqual(r.t, "missed", outcome, "%q at %v: run, too", spec, tick)
				outcome = "ran"
			}
			isUp := slices.ContainsFunc(spans, func(s span) bool { return s.from.Before(tick) && s.to.After(tick.Add(3*r.takes+time.Second)) })
			isBack := slices.ContainsFunc(spans, func(s span) bool { return s.from.After(tick) && s.to.Sub(s.from) > 2*time.Minute+30*r.takes })
			switch {
			case isUp:
				require.Contains(r.t, []string{"ran", "skipped"}, outcome, "%q at %v, while it is up", spec, tick)
			case isBack && (spec == newSpec || tick.Before(replaced)):
				// Its outcome may be that of a process that ends, or as a tick of the other spec.
				require.Contains(r.t, []string{"ran", "missed", "skipped", "lost", "failed"}, outcome, "%q at %v, while it is down", spec, tick)
				ends := slices.ContainsFunc(spans, func(s span) bool { return s.from.Before(tick) && s.to.After(tick) })
				if tick.Minute() != 0 && !ends && (outcome == "ran" || outcome == "missed") {
					require.Contains(r.t, runs, outcome == "ran", "%q at %v, while it is down: %q", spec, tick, outcome)
				}
			}
		}
	}
}

func TestDeploy_losesNoTickWhateverStartsAndEndsWhen(t *testing.T) {
	t.Parallel()
	requireOrders(t, 43)
}

func TestWeekly_deployLosesNoTickWhateverStartsAndEndsWhen(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	requireOrders(t, 1)
}

// requireOrders has each order happen with each policy and history, or only every so many of them.
func requireOrders(t *testing.T, every int) {
	t.Helper()
	policies := []struct {
		title  string
		policy int
		runs   []bool // whether an old tick may be run
	}{
		{"no catch-up", 0, []bool{false}},
		{"Newest", 1, []bool{false, true}},
		{"UpTo(100)", 100, []bool{true}},
	}
	n := 0
	for _, order := range orders(4, 5) {
		for _, catchUp := range policies {
			for i, history := range []int{1, 10, 100} {
				for _, crashes := range []bool{false, true} {
					if n++; n%every != 0 {
						continue
					}
					takes := time.Duration(n%2) * 20 * time.Second
					t.Run(fmt.Sprintf("%s, %s, history %d, crashes %v, runs of %v", order, catchUp.title, history, crashes, takes), func(t *testing.T) {
						t.Parallel()
						onSite(t, noon, func(s *site) {
							r := &rollout{
								site: s, takes: takes, crashes: crashes, up: map[string]*process{}, spans: map[string][]span{}, ran: map[time.Time]int{},
								opts:     []guardcron.Option{guardcron.WithHistory(history), guardcron.WithCatchUp(catchUp.policy)},
								reported: map[time.Time]string{},
							}
							//nolint:gosec // the numbers are small
							rng := rand.New(rand.NewPCG(uint64(len(order)+i), uint64(n)))
							for _, spec := range order {
								r.next(map[rune]string{'o': oldSpec, 'n': newSpec}[spec])
								s.sleep(time.Minute + time.Duration(rng.Int64N(int64(35*time.Minute))) + 100*time.Millisecond)
							}
							s.sleep(time.Hour)
							r.check(catchUp.runs)
						})
					})
				}
			}
		}
	}
}

// parsed returns the schedule of a spec, which may have a field for seconds.
func parsed(t *testing.T, spec string) cron.Schedule {
	t.Helper()
	schedule, err := cron.NewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor).Parse(spec)
	require.NoError(t, err)
	return schedule
}
