package guardscheduler_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/linetest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	guardscheduler "github.com/seed-1795987d/onerun/middleware/asynq/scheduler"
)

var errAway = errors.New("it is away")

// A cloud is a store of leases and a queue in virtual time, which can be away together, and the
// replicas that use them.
type cloud struct {
	t     *testing.T
	store *memory.Locker

	mu       sync.Mutex
	away     bool
	mute     bool   // marks are moved, but the answers to that are lost
	muted    bool   // there was such a time, so that ticks may be reported twice
	kills    string // the next process to enqueue dies "before" or "after" the queue has the task
	enqueued map[time.Time]int
	late     map[time.Time]time.Duration
	missed   map[time.Time]bool
	errs     int
	replicas []*cloudReplica
}

func (c *cloud) set(away bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.away = away
}

// A cloudReplica is a process, as which it is the store and the queue that it sees. Nothing of one
// that was killed gets through.
type cloudReplica struct {
	*guardscheduler.Replica
	linetest.Line
	cloud *cloud
	guard *guard.Guard
	dead  bool
}

// ask is a call that is under way for a moment.
func (c *cloudReplica) ask(ctx context.Context) error {
	select {
	case <-time.After(time.Millisecond):
	case <-ctx.Done():
		return ctx.Err()
	}
	c.cloud.mu.Lock()
	defer c.cloud.mu.Unlock()
	if c.cloud.away || c.dead {
		return errAway
	}
	return nil
}

func (c *cloudReplica) Raise(ctx context.Context, name, counter string, to int64) (int64, error) {
	was, err := c.Line.Raise(ctx, name, counter, to)
	c.cloud.mu.Lock()
	defer c.cloud.mu.Unlock()
	if err == nil && c.cloud.mute && to > 0 {
		return 0, errAway
	}
	return was, err
}

var _ driver.Ledger = (*cloudReplica)(nil)

func (c *cloudReplica) EnqueueContext(ctx context.Context, _ *asynq.Task, opts ...asynq.Option) (*asynq.TaskInfo, error) {
	if err := c.ask(ctx); err != nil {
		return nil, err
	}
	all := c.cloud
	all.mu.Lock()
	defer all.mu.Unlock()
	kills := all.kills
	if all.kills = ""; kills != "" {
		c.dead = true
	}
	if kills == "before" {
		return nil, errAway
	}
	id := opts[len(opts)-1].Value().(string)
	tick := tickOf(all.t, id)
	if all.enqueued[tick]++; all.enqueued[tick] > 1 {
		return nil, fmt.Errorf("%w: %s", asynq.ErrTaskIDConflict, id)
	}
	all.late[tick] = time.Since(tick)
	return &asynq.TaskInfo{ID: id}, nil
}

// start starts a process whose clock is off, with no entry if there is no spec.
func (c *cloud) start(spec string, off time.Duration, opts ...guardscheduler.Option) *cloudReplica {
	r := &cloudReplica{cloud: c}
	r.Line = linetest.Line{Locker: c.store, Ask: func(ctx context.Context, _ linetest.Call) error { return r.ask(ctx) }}
	g, err := guard.New(r, guard.WithNamespace("test"))
	require.NoError(c.t, err)
	r.guard = g
	r.Replica, err = guardscheduler.NewReplica(g, off, &asynq.SchedulerOpts{PostEnqueueFunc: func(_ *asynq.TaskInfo, err error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		var missed *guardscheduler.MissedError
		switch {
		case errors.As(err, &missed):
			ticks, err := guardscheduler.TicksIn(missed.Spec, missed.First.Add(-1), missed.Last)
			assert.NoError(c.t, err)
			assert.Len(c.t, ticks, missed.Ticks)
			for _, tick := range ticks {
				assert.True(c.t, c.muted || !c.missed[tick.UTC()], "%v is reported twice", tick)
				c.missed[tick.UTC()] = true
			}
		case err != nil && !r.dead:
			c.errs++
		}
	}}, r, opts...)
	require.NoError(c.t, err)
	if spec != "" {
		require.NoError(c.t, r.Start(spec, asynq.NewTask("report", nil)))
	}
	c.replicas = append(c.replicas, r)
	return r
}

func (r *cloudReplica) stop() {
	r.Stop()
	if err := r.guard.Close(context.Background()); !r.dead {
		require.NoError(r.cloud.t, err)
	}
}

// Each fault, with each policy of catching up, at the ticks of each second and of each minute:
// every tick is enqueued once or reported as missed, and none that was within the start deadline
// when the fault was over is missed.
func TestLong_everyTickIsEnqueuedOnceOrReportedUnderFaults(t *testing.T) {
	redistest.Long(t)
	outage := func(d time.Duration) func(*cloud, string, []guardscheduler.Option) {
		return func(c *cloud, _ string, _ []guardscheduler.Option) {
			c.set(true)
			time.Sleep(d)
			c.set(false)
		}
	}
	// An outage at whose end the answers to what is written are lost.
	mute := func(c *cloud, _ string, _ []guardscheduler.Option) {
		c.set(true)
		time.Sleep(5 * time.Minute)
		c.mu.Lock()
		c.away, c.mute, c.muted = false, true, true
		c.mu.Unlock()
		time.Sleep(10 * time.Second)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.mute = false
	}
	scale := func(down time.Duration) func(*cloud, string, []guardscheduler.Option) {
		return func(c *cloud, spec string, opts []guardscheduler.Option) {
			for _, r := range c.replicas {
				r.stop()
			}
			c.replicas = nil
			time.Sleep(down)
			c.start(spec, 0, opts...)
			c.start(spec, 0, opts...)
		}
	}
	kill := func(kills string) func(*cloud, string, []guardscheduler.Option) {
		return func(c *cloud, _ string, _ []guardscheduler.Option) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.kills = kills
		}
	}
	for name, fault := range map[string]struct {
		off   []time.Duration
		strip time.Duration // for how long nothing can be enqueued
		do    func(c *cloud, spec string, opts []guardscheduler.Option)
	}{
		"none":                             {off: []time.Duration{0, 0}},
		"an outage of 5 s":                 {off: []time.Duration{0, 0}, strip: 5 * time.Second, do: outage(5 * time.Second)},
		"an outage of 15 s":                {off: []time.Duration{0, 0}, strip: 15 * time.Second, do: outage(15 * time.Second)},
		"an outage of 60 s":                {off: []time.Duration{0, 0}, strip: 60 * time.Second, do: outage(60 * time.Second)},
		"an outage of 10 minutes":          {off: []time.Duration{0, 0}, strip: 10 * time.Minute, do: outage(10 * time.Minute)},
		"an outage, and then lost answers": {off: []time.Duration{0, 0}, strip: 5*time.Minute + 10*time.Second, do: mute},
		"clocks 900 ms ahead and behind":   {off: []time.Duration{900 * time.Millisecond, 0, -900 * time.Millisecond}},
		"clocks, and an outage of 60 s":    {off: []time.Duration{900 * time.Millisecond, -900 * time.Millisecond}, strip: 60 * time.Second, do: outage(60 * time.Second)},
		"killed before it has enqueued":    {off: []time.Duration{0, 0}, strip: 15 * time.Second, do: kill("before")},
		"killed before it leaves a marker": {off: []time.Duration{0, 0}, strip: 15 * time.Second, do: kill("after")},
		"scaled to zero for 20 s":          {off: []time.Duration{0, 0}, strip: 20 * time.Second, do: scale(20 * time.Second)},
		"scaled to zero for an hour":       {off: []time.Duration{0, 0}, strip: time.Hour, do: scale(time.Hour)},
	} {
		for policy, catchUp := range map[string]int{"no catch-up": 0, "newest": 1, "up to 1000": 1000} {
			for _, spec := range []string{"@every 23s", "* * * * *", "*/20 * * * *"} {
				t.Run(name+"/"+policy+"/"+spec, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						c := &cloud{store: memory.New(), t: t, enqueued: map[time.Time]int{}, late: map[time.Time]time.Duration{}, missed: map[time.Time]bool{}}
						opts := []guardscheduler.Option{guardscheduler.WithCatchUp(catchUp)}
						begin := time.Now().UTC()
						for _, off := range fault.off {
							c.start(spec, off, opts...)
						}
						time.Sleep(25*time.Minute - 3*time.Second)
						from := time.Now().UTC()
						if fault.do != nil {
							fault.do(c, spec, opts)
						}
						time.Sleep(25 * time.Minute)
						end := time.Now().UTC()
						for _, r := range c.replicas {
							r.stop()
						}
						ticks, err := guardscheduler.TicksIn(spec, begin.Add(time.Second), end.Add(-30*time.Second))
						require.NoError(t, err)
						require.NotEmpty(t, ticks)
						over := from.Add(fault.strip)
						caught := 0
						for _, tick := range ticks {
							tick = tick.UTC()
							require.NotEqual(t, c.enqueued[tick] > 0, c.missed[tick], "%v is enqueued or missed", tick)
							if !strings.HasPrefix(name, "killed") {
								require.LessOrEqual(t, c.enqueued[tick], 1, "%v: the marker keeps out a second one", tick)
							}
							if c.missed[tick] {
								require.Positive(t, fault.strip, "nothing is missed without a fault")
								require.WithinRange(t, tick, from.Add(-time.Second), over.Add(-time.Minute+2*time.Second))
							} else if c.late[tick] > time.Minute+2*time.Second {
								caught++
							}
						}
						switch catchUp {
						case 0:
							require.Zero(t, caught)
						case 1:
							require.LessOrEqual(t, caught, 1)
						default:
							require.Empty(t, c.missed)
						}
						if !strings.Contains(name, "outage") {
							require.Zero(t, c.errs, "only an outage is an error")
						}
						require.Empty(t, c.kills, "it was killed")
					})
				})
			}
		}
	}
}

// A deployment changes the spec: the ticks that only the new one has, before it came, are none.
func TestFaults_aChangedSpecBeginsAnew(t *testing.T) {
	for _, catchUp := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			c := &cloud{store: memory.New(), t: t, enqueued: map[time.Time]int{}, late: map[time.Time]time.Duration{}, missed: map[time.Time]bool{}}
			day := time.Now().UTC().Truncate(24 * time.Hour)
			old := c.start("0 3 * * *", 0, guardscheduler.WithCatchUp(catchUp))
			time.Sleep(time.Until(day.Add(14 * time.Hour)))
			old.stop()
			changed := c.start("0 12 * * *", 0, guardscheduler.WithCatchUp(catchUp))
			time.Sleep(time.Hour)
			c.mu.Lock()
			require.Equal(t, map[time.Time]int{day.Add(3 * time.Hour): 1}, c.enqueued)
			c.mu.Unlock()
			time.Sleep(24 * time.Hour)
			changed.stop()
			require.Equal(t, map[time.Time]int{day.Add(3 * time.Hour): 1, day.Add(36 * time.Hour): 1}, c.enqueued)
			require.Empty(t, c.missed)
		})
	}
}
