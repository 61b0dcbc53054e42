package guardscheduler_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	guardscheduler "github.com/seed-1795987d/onerun/middleware/asynq/scheduler"
)

// A deploy is a program whose spec is changed by a deployment, with its processes by their spec.
type deploy struct {
	*cloud
	specs [2]string // the old one and the new one
	opts  []guardscheduler.Option

	up    [2][]*cloudReplica
	born  [2]time.Time   // the first start
	times [2][]time.Time // starts and ends of the time in which processes have the spec
}

func (d *deploy) begin(spec int) {
	if d.born[spec].IsZero() {
		d.born[spec] = time.Now()
	}
	if len(d.up[spec]) == 0 {
		d.times[spec] = append(d.times[spec], time.Now())
	}
	d.up[spec] = append(d.up[spec], d.start(d.specs[spec], 0, d.opts...))
}

// end ends a process, which can crash.
func (d *deploy) end(spec int, crash bool) {
	r := d.up[spec][0]
	d.up[spec] = d.up[spec][1:]
	d.mu.Lock()
	r.dead = crash
	d.mu.Unlock()
	r.stop()
	if len(d.up[spec]) == 0 {
		d.times[spec] = append(d.times[spec], time.Now())
	}
}

// finish lets processes with both specs run for a while, and ends all.
func (d *deploy) finish() {
	for spec := range d.specs {
		d.begin(spec)
	}
	time.Sleep(5*time.Minute + 7*time.Second)
	for spec := range d.specs {
		for len(d.up[spec]) > 0 {
			d.end(spec, false)
		}
	}
}

// owes reports whether a tick of a spec has to be enqueued or reported.
func (d *deploy) owes(spec int, tick time.Time) bool {
	switch {
	case !tick.After(d.born[spec].Add(time.Second)):
		return false
	case spec == 1 || d.born[1].IsZero() || tick.Before(d.born[1]):
		return true // it is the newest
	}
	for i := 0; i+1 < len(d.times[0]); i += 2 { // also if the process has crashed just before
		if tick.After(d.times[0][i]) && !tick.After(d.times[0][i+1].Add(time.Second)) {
			return true
		}
	}
	return false
}

func (d *deploy) check(t *testing.T, what ...any) {
	t.Helper()
	for spec, text := range d.specs {
		ticks, err := guardscheduler.TicksIn(text, d.born[spec], time.Now().Add(-10*time.Second))
		require.NoError(t, err)
		for _, tick := range ticks {
			tick = tick.UTC()
			require.LessOrEqual(t, d.enqueued[tick], 1, "%v of %q is enqueued twice: %v", tick, text, what)
			if d.owes(spec, tick) {
				require.True(t, d.enqueued[tick] > 0 || d.missed[tick], "%v of %q is neither enqueued nor missed: %v", tick, text, what)
			}
		}
	}
}

var deployedSpecs = map[string][2]string{
	"other ticks":    {"0 * * * *", "30 * * * *"},
	"some in common": {"*/20 * * * *", "*/30 * * * *"},
	"fewer":          {"0 * * * *", "0 */3 * * *"},
	"more":           {"0 */3 * * *", "*/15 * * * *"},
	"each minute":    {"* * * * *", "@every 7m"},
}

// The old process is restarted after the new spec began, and the new process is down for hours.
func TestDeploys_theNewSpecOwesItsTicksWhateverTheOldOneDoes(t *testing.T) {
	for name, specs := range deployedSpecs {
		for _, catchUp := range allCatchUps {
			crash := catchUp > 0 // TestLong_deploys… has the others
			t.Run(fmt.Sprint(name, ", ", catchUp, ", crash ", crash), func(t *testing.T) {
				inCloud(t, func(t *testing.T, c *cloud) {
					d := &deploy{cloud: c, specs: specs, opts: []guardscheduler.Option{guardscheduler.WithCatchUp(catchUp)}}
					d.begin(0)
					time.Sleep(55*time.Minute + 3*time.Second)
					d.begin(1)
					time.Sleep(20 * time.Minute)
					d.end(0, crash)
					time.Sleep(3 * time.Minute)
					d.begin(0)
					time.Sleep(7 * time.Minute)
					d.end(1, crash)
					time.Sleep(4 * time.Hour)
					if catchUp == 100 {
						d.begin(1)
						time.Sleep(2 * time.Minute)
						require.Empty(t, d.missed)
					}
					d.finish()
					d.check(t)
				})
			})
		}
	}
}

// Nothing is up at a tick of the old spec, and its processes do not come back.
func TestDeploys_theNewSpecSettlesTheTicksOfTheOldOneBeforeIt(t *testing.T) {
	for _, catchUp := range allCatchUps {
		for down, owed := range map[time.Duration]int{30 * time.Second: 1, 10 * time.Minute: 1, 3 * time.Hour: 3} {
			t.Run(fmt.Sprint(catchUp, ", down for ", down), func(t *testing.T) {
				inCloud(t, func(t *testing.T, c *cloud) {
					d := &deploy{cloud: c, specs: [2]string{"0 * * * *", "30 4 * * *"}, opts: []guardscheduler.Option{guardscheduler.WithCatchUp(catchUp)}}
					d.begin(0)
					time.Sleep(59*time.Minute + 50*time.Second)
					d.end(0, true)
					time.Sleep(down)
					for range 2 { // the second time, nothing is left
						d.begin(1)
						time.Sleep(20 * time.Second)
						d.end(1, false)
						want := owed
						if catchUp != 100 && down > time.Minute {
							want = min(owed, catchUp)
						}
						require.Len(t, d.enqueued, want)
						require.Len(t, d.missed, owed-want)
					}
				})
			})
		}
	}
}

func TestLong_deploysInAnyOrderLoseNoTickAndEnqueueNoneTwice(t *testing.T) {
	redistest.Long(t)
	deploysInAnyOrder(t, 0, 2)
}

func TestWeekly_deploysInAnyOrderLoseNoTickAndEnqueueNoneTwice(t *testing.T) {
	redistest.Long(t)
	deploysInAnyOrder(t, 2, 40)
}

func deploysInAnyOrder(t *testing.T, from, to uint64) {
	t.Helper()
	for name, specs := range deployedSpecs {
		for _, catchUp := range allCatchUps {
			t.Run(fmt.Sprint(name, ", ", catchUp), func(t *testing.T) {
				for seed := from; seed < to; seed++ {
					inCloud(t, func(t *testing.T, c *cloud) {
						r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // reproducible
						d := &deploy{cloud: c, specs: specs, opts: []guardscheduler.Option{guardscheduler.WithCatchUp(catchUp)}}
						var steps []string
						d.begin(0)
						for range 14 {
							// not at a tick: whoever dies there may have enqueued it
							time.Sleep(time.Duration(r.IntN(1+r.IntN(5*60)))*time.Minute + 13*time.Second)
							spec := r.IntN(2)
							if crash := r.IntN(2) == 0; len(d.up[spec]) > 0 && r.IntN(3) > 0 {
								d.end(spec, crash)
								steps = append(steps, fmt.Sprint(time.Now().UTC().Format("02 15:04:05 "), "end ", spec, " crash ", crash))
							} else if len(d.up[spec]) < 2 {
								d.begin(spec)
								steps = append(steps, fmt.Sprint(time.Now().UTC().Format("02 15:04:05 "), "begin ", spec))
							}
						}
						d.finish()
						d.check(t, seed, steps)
					})
				}
			})
		}
	}
}
