package guardscheduler_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	guardscheduler "github.com/seed-1795987d/onerun/middleware/asynq/scheduler"
)

// inCloud calls f in virtual time.
func inCloud(t *testing.T, f func(t *testing.T, c *cloud)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(t, &cloud{store: memory.New(), t: t, enqueued: map[time.Time]int{}, late: map[time.Time]time.Duration{}, missed: map[time.Time]bool{}})
	})
}

// requireEach requires that each tick of a spec is enqueued or missed, and how many are missed.
func (c *cloud) requireEach(t *testing.T, spec string, from, to time.Time, missed int) {
	t.Helper()
	ticks, err := guardscheduler.TicksIn(spec, from, to)
	require.NoError(t, err)
	require.NotEmpty(t, ticks)
	n := 0
	for _, tick := range ticks {
		tick = tick.UTC()
		require.True(t, c.enqueued[tick] > 0 || c.missed[tick], "%v of %q is enqueued or missed", tick, spec)
		if c.missed[tick] {
			n++
		}
	}
	require.Equal(t, missed, n, spec)
}

var allCatchUps = []int{0, 1, 100}

// Two specs for the same task. The second came later.
const oftenSpec, dailySpec = "*/5 * * * *", "7 1 * * *"

func TestSpecs_twoOfOneTaskHaveMarksOfTheirOwnInAnOutage(t *testing.T) {
	// The outage ends at any instant around a tick of the other spec.
	for i := range 10 {
		inCloud(t, func(t *testing.T, c *cloud) {
			begin := time.Now().UTC()
			r := c.start(oftenSpec, 0)
			time.Sleep(time.Hour)
			require.NoError(t, r.Start(dailySpec, asynq.NewTask("report", nil)))
			time.Sleep(6 * time.Minute) // to 01:06
			c.set(true)
			time.Sleep(3*time.Minute + 58*time.Second + time.Duration(i)*time.Second/2)
			c.set(false)
			time.Sleep(9 * time.Minute)
			end := time.Now() // not at a tick
			r.stop()
			c.requireEach(t, dailySpec, begin, end, 1)
			c.requireEach(t, oftenSpec, begin, end, 0)
		})
	}
}

func TestSpecs_twoOfOneTaskGoOnAfterAllReplicasWereDown(t *testing.T) {
	for _, catchUp := range allCatchUps {
		t.Run(fmt.Sprint(catchUp), func(t *testing.T) {
			inCloud(t, func(t *testing.T, c *cloud) {
				begin := time.Now().UTC()
				opt := guardscheduler.WithCatchUp(catchUp)
				r := c.start(oftenSpec, 0, opt)
				time.Sleep(time.Hour)
				require.NoError(t, r.Start(dailySpec, asynq.NewTask("report", nil)))
				time.Sleep(6 * time.Minute)
				r.stop()
				time.Sleep(10*time.Minute + 13*time.Second)
				r = c.start(oftenSpec, 0, opt)
				require.NoError(t, r.Start(dailySpec, asynq.NewTask("report", nil)))
				time.Sleep(10 * time.Minute)
				r.stop()
				c.requireEach(t, dailySpec, begin, time.Now(), max(0, 1-catchUp))
				c.requireEach(t, oftenSpec, begin, time.Now(), max(0, 2-catchUp))
			})
		})
	}
}

func TestSpecs_oneThatIsRolledBackBeginsAnew(t *testing.T) {
	for _, catchUp := range allCatchUps {
		t.Run(fmt.Sprint(catchUp), func(t *testing.T) {
			inCloud(t, func(t *testing.T, c *cloud) {
				opt := guardscheduler.WithCatchUp(catchUp)
				a := c.start("0 * * * *", 0, opt)
				time.Sleep(150 * time.Minute) // to 02:30
				a.stop()
				b := c.start("0 3 1 * *", 0, opt) // monthly
				time.Sleep(6 * time.Hour)
				b.stop()
				before := len(c.enqueued)
				for range 2 { // the second time, it was not replaced meanwhile
					a = c.start("0 * * * *", 0, opt)
					time.Sleep(10 * time.Second)
					a.stop()
				}
				require.Empty(t, c.missed)
				require.Len(t, c.enqueued, before)
				time.Sleep(3 * time.Hour) // with no process up
				a = c.start("0 * * * *", 0, opt)
				time.Sleep(10 * time.Second)
				a.stop()
				require.Equal(t, 3, len(c.missed)+len(c.enqueued)-before)
				require.Len(t, c.missed, max(0, 3-catchUp))
			})
		})
	}
}

func TestSpecs_oneInOtherWordsIsTheSame(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.start("@daily", 0)
		time.Sleep(time.Hour)
		a.stop()
		time.Sleep(24 * time.Hour)
		b := c.start("0 0 * * *", 0)
		time.Sleep(10 * time.Second)
		b.stop()
		require.Len(t, c.missed, 1)
	})
}

// A Manager's provider has left a config out for days.
func TestSpecs_oneThatIsEnabledAgainBeginsAnew(t *testing.T) {
	for _, catchUp := range allCatchUps {
		t.Run(fmt.Sprint(catchUp), func(t *testing.T) {
			inCloud(t, func(t *testing.T, c *cloud) {
				opt := guardscheduler.WithCatchUp(catchUp)
				a := c.start("0 * * * *", 0, opt)
				time.Sleep(150 * time.Minute) // to 02:30
				a.stop()
				time.Sleep(10 * 24 * time.Hour)
				before := len(c.enqueued)
				b := c.start("", 0, opt)
				disable, err := b.Enable("0 * * * *", asynq.NewTask("report", nil), time.Now().Add(-3*time.Minute))
				require.NoError(t, err)
				time.Sleep(10 * time.Minute)
				disable()
				b.stop()
				a = c.start("0 * * * *", 0, opt) // after a restart, too
				time.Sleep(10 * time.Minute)
				c.mu.Lock()
				require.Empty(t, c.missed)
				require.Len(t, c.enqueued, before)
				c.mu.Unlock()
				time.Sleep(time.Hour)
				a.stop()
				require.Empty(t, c.missed)
				require.Len(t, c.enqueued, before+1)
			})
		})
	}
}

// A process cannot ask the store for longer than it remembers ticks. Those that a process with
// another spec has enqueued meanwhile are not enqueued again.
func TestSpecs_oneThatWasCutOffEnqueuesNothingOfTheOtherAgain(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		begin := time.Now().UTC()
		opt := guardscheduler.WithCatchUp(100)
		cut, other := c.start("*/20 * * * *", 0, opt), c.start("*/30 * * * *", 0, opt)
		set := func(dead bool) {
			c.mu.Lock()
			defer c.mu.Unlock()
			cut.dead = dead
		}
		time.Sleep(10 * time.Minute)
		set(true)
		time.Sleep(5 * time.Hour)
		set(false)
		time.Sleep(30*time.Minute + 10*time.Second)
		cut.stop()
		other.stop()
		c.requireEach(t, "*/20 * * * *", begin, time.Now(), 0)
		for tick, n := range c.enqueued {
			require.Equal(t, 1, n, tick)
		}
	})
}
