package guardcron_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// A plant is three processes with a job of six seconds that is due each twenty, in virtual time.
// Clocks differ by up to 1.8 s, leases last for ten seconds, and a tick may start half a minute
// late.
type plant struct {
	*site
	feature feature
	all     []*process
	spec    string

	mu       sync.Mutex
	runs     []*plantRun
	reported map[string]bool // by observers
	outage   [2]time.Time
	up       []span // when processes were up with the spec of that time
}

// A span is a time in which ticks of a spec count.
type span struct {
	spec     string
	from, to time.Time
}

type plantRun struct {
	tick       time.Time
	who        string
	begun, end time.Time
	completed  bool
	died       bool // with its process
}

// skews are clocks that a process may have.
var skews = []time.Duration{-900 * time.Millisecond, 0, 900 * time.Millisecond}

// A feature is an option, or another way to use the package.
type feature struct {
	spec    string // "" is each twenty seconds
	opts    []guardcron.Option
	overlap bool                                // runs may overlap
	fails   bool                                // the first run of each third tick fails
	during  func(t *testing.T, p *plant) func() // called during the fault, its result after it
}

var plantFeatures = map[string]feature{
	"the defaults":  {},
	"Wait":          {opts: []guardcron.Option{guardcron.WithOverlap(guardcron.Wait)}},
	"Wait and fair": {opts: []guardcron.Option{guardcron.WithOverlap(guardcron.Wait), guardcron.WithLease(guard.WithFair())}},
	"Allow":         {opts: []guardcron.Option{guardcron.WithOverlap(guardcron.Allow)}, overlap: true},
	"Newest":        {opts: []guardcron.Option{guardcron.WithCatchUp(1)}},
	"UpTo(3)":       {opts: []guardcron.Option{guardcron.WithCatchUp(3)}},
	"Rerun":         {opts: []guardcron.Option{guardcron.WithRerun()}, fails: true},
	"MaxHold":       {opts: []guardcron.Option{guardcron.WithMaxHold(15 * time.Second)}},
	"Jitter":        {opts: []guardcron.Option{guardcron.WithJitter(7 * time.Second)}},
	"LocalTicks":    {opts: []guardcron.Option{guardcron.WithLocalTicks()}},
	"History(5)":    {opts: []guardcron.Option{guardcron.WithHistory(5)}},
	"TickMemory":    {opts: []guardcron.Option{guardcron.WithTickMemory(time.Minute)}},
	"several options": {spec: "7-59/20 * * * * *", opts: []guardcron.Option{
		guardcron.WithOverlap(guardcron.Wait), guardcron.WithRerun(), guardcron.WithLocalTicks(), guardcron.WithMaxHold(15 * time.Second)}},
	"Pause": {during: func(t *testing.T, p *plant) func() {
		t.Helper()
		require.NoError(t, p.all[0].Pause(context.Background(), "job", 0, alice))
		return func() { require.NoError(t, p.all[0].Resume(context.Background(), "job", alice)) }
	}},
	"RunNow": {during: func(_ *testing.T, p *plant) func() {
		go func() { _ = p.all[1].RunNow(context.Background(), "job") }()
		return func() {}
	}},
	"Remove and add": {during: func(t *testing.T, p *plant) func() {
		t.Helper()
		n := p.all[1]
		require.NoError(t, n.Remove("job"))
		return func() {
			if p.all[1] == n { // it was not replaced by another one
				p.addTo(n)
			}
		}
	}},
}

// A plantFault happens to a plant, and is over when it returns.
var plantFaults = map[string]func(p *plant){
	"the store is away for 60 s": func(p *plant) { p.cut(time.Minute) },
	"a process is killed": func(p *plant) {
		for n := 0; p.running() == ""; n++ {
			require.Less(p.t, n, 1200, "nothing runs")
			p.sleep(100 * time.Millisecond)
		}
		who := p.running()
		for i, old := range p.all {
			if old.who == who {
				old.die()
				p.forgetRuns(who)
				p.sleep(5 * time.Second)
				p.all[i] = p.start("next "+who, 0)
			}
		}
	},
	"a clock steps forward": func(p *plant) { guardcron.SetClock(p.all[0].Jobs, p.base+900*time.Millisecond); p.sleep(time.Minute) },
	"a clock steps back":    func(p *plant) { guardcron.SetClock(p.all[2].Jobs, p.base-900*time.Millisecond); p.sleep(time.Minute) },
	"its spec changes": func(p *plant) {
		p.ends()
		p.sleep(10 * time.Second)
		p.starts("10-59/30 * * * * *")
	},
	"scale to zero and back": func(p *plant) {
		p.ends()
		p.sleep(2 * time.Minute)
		p.starts(p.spec)
	},
}

func TestFaults_ofEachKind(t *testing.T) {
	t.Parallel()
	requireFeatures(t, plantFaults, 5)
}

func TestWeekly_faultsOfEachKindWithEachFeature(t *testing.T) {
	redistest.Long(t)
	requireFeatures(t, plantFaults, 1)
	requireFeatures(t, map[string]func(p *plant){
		"the store is away for 5 s":  func(p *plant) { p.cut(5 * time.Second) },
		"the store is away for 15 s": func(p *plant) { p.cut(15 * time.Second) },
	}, 1)
}

// requireFeatures has each of the faults befall a plant with each of the features, or only with
// every so many of them.
func requireFeatures(t *testing.T, faults map[string]func(p *plant), every int) {
	t.Helper()
	for i, fault := range slices.Sorted(maps.Keys(faults)) {
		befall := faults[fault]
		for j, title := range slices.Sorted(maps.Keys(plantFeatures)) {
			if (i+j)%every != 0 {
				continue
			}
			f := plantFeatures[title]
			t.Run(fault+"/"+title, func(t *testing.T) {
				t.Parallel()
				onSite(t, "2026-06-15T12:00:05Z", func(s *site) {
					p := &plant{site: s, feature: f, reported: map[string]bool{}}
					p.starts(cmp.Or(f.spec, "*/20 * * * * *"))
					p.until("2026-06-15T12:02:01.5Z") // a run has begun
					after := func() {}
					if f.during != nil {
						after = f.during(t, p)
					}
					befall(p)
					after()
					p.sleep(2 * time.Minute)
					p.sleep(instant(t, "2026-06-15T12:08:15Z").Sub(p.now()))
					p.ends()
					p.check()
				})
			})
		}
	}
}

func (p *plant) starts(spec string) {
	p.spec = spec
	p.all = nil
	for i, who := range []string{"a", "b", "c"} {
		p.all = append(p.all, p.start(fmt.Sprint(who, len(p.up)), skews[i]))
	}
	p.up = append(p.up, span{spec: spec, from: p.now()})
}

// ends ends all processes as a deployment does.
func (p *plant) ends() {
	for _, old := range p.all {
		old.cron.Stop()
	}
	for _, old := range p.all {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		require.NoError(p.t, old.Close(ctx))
		cancel()
	}
	p.up[len(p.up)-1].to = p.now()
}

func (p *plant) start(who string, skew time.Duration) *process {
	opts := append(slices.Clone(p.feature.opts), guardcron.WithStartDeadline(30*time.Second), guardcron.WithObserver(p.observe))
	n := p.process(who, setup{skew: skew, cron: []cron.Option{cron.WithSeconds()}, guard: []guard.Option{guard.WithTTL(10 * time.Second)}, jobs: opts})
	p.addTo(n)
	n.cron.Start()
	return n
}

func (p *plant) addTo(n *process) {
	_, err := n.AddFunc("job", p.spec, func(ctx context.Context) error { return p.run(ctx, n.who) })
	require.NoError(p.t, err)
}

func (p *plant) cut(d time.Duration) {
	p.outage[0] = p.now()
	for _, n := range p.all {
		n.line.cut.Store(true)
	}
	p.sleep(d)
	for _, n := range p.all {
		n.line.cut.Store(false)
	}
	p.outage[1] = p.now()
}

// running returns the process that runs the job.
func (p *plant) running() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.runs {
		if r.end.IsZero() && !r.tick.IsZero() {
			return r.who
		}
	}
	return ""
}

// forgetRuns has the runs of a process that dies never complete.
func (p *plant) forgetRuns(who string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.runs {
		r.died = r.died || r.who == who && r.end.IsZero()
	}
}

var errPlant = fmt.Errorf("the first run fails")

func (p *plant) run(ctx context.Context, who string) error {
	tick, _ := guardcron.Tick(ctx)
	r := &plantRun{tick: tick, who: who, begun: p.now()}
	p.mu.Lock()
	again := slices.ContainsFunc(p.runs, func(o *plantRun) bool { return o.tick.Equal(tick) })
	p.runs = append(p.runs, r)
	p.mu.Unlock()
	err := lasting(6 * time.Second)(ctx)
	if err == nil && p.feature.fails && !again && !tick.IsZero() && tick.Second() == 40 {
		err = errPlant
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	r.end, r.completed = p.now(), err == nil && !r.died
	return err
}

func (p *plant) observe(r guardcron.Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.Result == guardcron.Ran || r.Result == guardcron.Unavailable || r.Tick.IsZero() {
		return
	}
	for at := range ticksBetween(p.t, p.spec, r) {
		p.reported[at.Format(time.TimeOnly)+" "+string(r.Result)] = true
	}
}

// check fails unless each tick was run once or reported, no two runs overlapped, and all is well
// since the fault is over.
func (p *plant) check() {
	p.mu.Lock()
	defer p.mu.Unlock()
	ofTick := map[string][]*plantRun{}
	for i, r := range p.runs {
		require.NotZero(p.t, r.end)
		ofTick[r.tick.Format(time.TimeOnly)] = append(ofTick[r.tick.Format(time.TimeOnly)], r)
		for _, o := range p.runs[:i] {
			require.True(p.t, p.feature.overlap || !o.end.After(r.begun), "overlap: %+v and %+v", o, r)
		}
	}
	ticks := 0
	from := p.up[0].from
	for n, up := range p.up {
		if n > 0 && up.spec != p.up[n-1].spec {
			from = up.from // ticks for which no process was up do not count
		}
		schedule := parsed(p.t, up.spec)
		// a tick of the last seconds may be left to the next process
		for tick := schedule.Next(from); tick.Before(up.to.Add(-20 * time.Second)); tick = schedule.Next(tick) {
			ticks++
			p.checkTick(tick, ofTick[tick.Format(time.TimeOnly)], up.to)
			from = tick
		}
	}
	require.Greater(p.t, ticks, 12)
	for _, r := range p.all[0].records("job") {
		require.NotEqual(p.t, guardcron.Running, r.Result, "%+v", r)
	}
}

func (p *plant) checkTick(tick time.Time, runs []*plantRun, to time.Time) {
	at := tick.Format(time.TimeOnly)
	completed, inOutage := 0, 0
	for _, r := range runs {
		switch {
		case !r.completed:
		case !p.outage[0].IsZero() && r.end.After(p.outage[0]) && r.end.Before(p.outage[1].Add(time.Second)):
			inOutage++ // its marker may have been lost
		default:
			completed++
		}
	}
	require.LessOrEqual(p.t, completed, 1, "twice: %s", at)
	require.LessOrEqual(p.t, inOutage, 1, "twice in an outage: %s", at)
	missed := p.reported[at+" missed"]
	skipped := p.reported[at+" skipped"]
	other := p.reported[at+" lost"] || p.reported[at+" failed"]
	if completed+inOutage == 0 {
		require.True(p.t, missed || skipped || other, "neither run nor reported: %s; runs %d", at, len(runs))
	}
	if completed > 0 {
		require.False(p.t, missed, "run, and reported as missed: %s", at)
	}
	if tick.After(to.Add(-time.Minute)) {
		require.Equal(p.t, 1, completed, "all is well: %s %v", at, p.reported)
	}
}
