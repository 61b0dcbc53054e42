package scale_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// A meter reads how much processor time the test and the servers have used.
type meter struct {
	t      *testing.T
	admins []*redis.Client
	at     time.Time
	own    time.Duration
	each   []time.Duration // of the servers
}

func startMeter(t *testing.T, servers ...*redistest.Server) *meter {
	t.Helper()
	m := &meter{t: t}
	for _, s := range servers {
		m.admins = append(m.admins, s.Client(t, func(o *redis.Options) { o.PoolSize = 1 }))
	}
	m.reset()
	return m
}

func (m *meter) reset() { m.at, m.own, m.each = m.read() }

func (m *meter) read() (at time.Time, own time.Duration, each []time.Duration) {
	m.t.Helper()
	var used syscall.Rusage
	require.NoError(m.t, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	for _, admin := range m.admins {
		seconds := info(m.t, admin, "cpu", "CPU", "used_cpu_user") + info(m.t, admin, "cpu", "CPU", "used_cpu_sys")
		each = append(each, time.Duration(seconds*float64(time.Second)))
	}
	return time.Now(), time.Duration(used.Utime.Nano() + used.Stime.Nano()), each
}

// A spending is the processor time that was used in a span.
type spending struct {
	span, own, servers, busiest time.Duration
}

// since returns what was used since reset.
func (m *meter) since() (s spending) {
	m.t.Helper()
	at, own, each := m.read()
	s.span, s.own = at.Sub(m.at), own-m.own
	for i := range each {
		used := each[i] - m.each[i]
		s.servers += used
		s.busiest = max(s.busiest, used)
	}
	return s
}

// share returns the time as a share of a core, in percent.
func (s spending) share(used time.Duration) float64 { return 100 * used.Seconds() / s.span.Seconds() }

// info returns a number that a server says of itself.
func info(t *testing.T, rdb *redis.Client, section, title, field string) float64 {
	t.Helper()
	all, err := rdb.InfoMap(context.Background(), section).Result()
	require.NoError(t, err)
	n, err := strconv.ParseFloat(all[title][field], 64)
	require.NoError(t, err)
	return n
}

// inParallel calls f for each number below n.
func inParallel(callers, n int, f func(int)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				f(int(i))
			}
		})
	}
	all.Wait()
}
