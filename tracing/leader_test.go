package tracing_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

// leaders returns the metrics of the only name: whether the process leads, its terms, and how long
// it has known no leader.
func (s *telescope) leaders(t *testing.T) (leading, terms int64, absent float64) {
	t.Helper()
	all := s.metrics(t)
	if d, ok := all["onerun.leader.leading"].Data.(metricdata.Gauge[int64]); ok {
		leading = d.DataPoints[0].Value
	}
	if d, ok := all["onerun.leader.terms"].Data.(metricdata.Sum[int64]); ok {
		terms = d.DataPoints[0].Value
	}
	if d, ok := all["onerun.leader.absence"].Data.(metricdata.Sum[float64]); ok {
		absent = d.DataPoints[0].Value
	}
	return leading, terms, absent
}

// Two processes, of which the first leads, loses its way to the store, and leads again.
func TestLeader_metrics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		var away [2]atomic.Bool
		var seen [2]*telescope
		var guards [2]*guard.Guard
		var stop [2]context.CancelFunc
		for i := range 2 {
			seen[i] = newTelescope(t)
			line := &guardtest.Scripted{Inner: store}
			line.OnAcquire = func(context.Context, int, driver.Claim) (driver.Answer, error) {
				if away[i].Load() {
					return driver.Answer{}, guardtest.Fail(driver.KindConnection)
				}
				return driver.Answer{}, guardtest.ErrUnscripted
			}
			line.OnRenew = func(context.Context, int, driver.Claim) (bool, error) {
				if away[i].Load() {
					return false, guardtest.Fail(driver.KindConnection)
				}
				return false, guardtest.ErrUnscripted
			}
			g, err := guard.New(line, guard.WithTTL(10*time.Second), guard.WithName("reports"), guard.WithHook(seen[i].hook))
			require.NoError(t, err)
			guards[i] = g
			ctx, cancel := context.WithCancel(context.Background())
			stop[i] = cancel
			go func() {
				_ = g.Lead(ctx, "leader", func(ctx context.Context) error { <-ctx.Done(); return nil })
			}()
			time.Sleep(time.Second) // virtual time
		}
		requireLeaders := func(i int, leading, terms int64, absent float64) {
			t.Helper()
			l, n, a := seen[i].leaders(t)
			require.Equal(t, leading, l)
			require.Equal(t, terms, n)
			require.InDelta(t, absent, a, .5)
		}
		time.Sleep(time.Hour) // virtual time
		requireLeaders(0, 1, 1, 0)
		requireLeaders(1, 0, 0, 0)
		for name, m := range seen[1].metrics(t) {
			if name == "onerun.waiter.active" {
				require.Equal(t, []string{"onerun.waiter.active{onerun.name=reports} 0"}, points(m), "it stands by")
			}
		}

		away[0].Store(true)
		away[1].Store(true)
		time.Sleep(20 * time.Second) // virtual time
		l, _, _ := seen[0].leaders(t)
		require.Zero(t, l, "its lease has ended")
		time.Sleep(70 * time.Second) // virtual time: about 80 s after the lease has ended
		_, _, absent := seen[1].leaders(t)
		require.InDelta(t, 82, absent, 4, "the outage is counted while it lasts")
		away[1].Store(false)
		time.Sleep(2 * time.Second) // virtual time
		l, n, absent := seen[1].leaders(t)
		require.EqualValues(t, 1, l)
		require.EqualValues(t, 1, n)
		time.Sleep(time.Minute) // virtual time
		requireLeaders(1, 1, 1, absent)
		_, _, before := seen[0].leaders(t)
		away[0].Store(false)
		time.Sleep(time.Minute) // virtual time
		_, _, after := seen[0].leaders(t)
		require.InDelta(t, before, after, 2, "it knows the leader again")
		stop[1]()
		time.Sleep(time.Second) // virtual time
		l, n, _ = seen[0].leaders(t)
		require.EqualValues(t, 1, l)
		require.EqualValues(t, 2, n)
		stop[0]()
		synctest.Wait()
		for i := range 2 {
			l, _, _ := seen[i].leaders(t)
			require.Zero(t, l)
			require.NoError(t, guards[i].Close(context.Background()))
			synctest.Wait()
			seen[i].requireBalanced(t)
		}
	})
}
