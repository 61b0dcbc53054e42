package etcd_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/seed-1795987d/onerun/backend/etcd"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/etcdtest"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
)

// The leader of three servers is killed, or frozen, with a thousand leases held. None is lost, and
// none is granted to another process. The keys of dead holders are free after their TTL: soon if
// the leader stays, and after up to another TTL if there is a new one. With -v, it says how long.
func TestWeekly_theLeaderIsKilledAndFrozen(t *testing.T) {
	leftout.IfShort(t)
	for name, fault := range map[string]func(t *testing.T, s *etcdtest.Server) (repair func()){
		"killed": func(t *testing.T, s *etcdtest.Server) func() {
			s.Kill()
			return func() { s.Restart(t) }
		},
		"frozen": func(t *testing.T, s *etcdtest.Server) func() {
			s.Freeze(t)
			return s.Thaw
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const ttl = 3 * time.Second
			servers := etcdtest.StartCluster(t, 3)
			l := etcd.New(connect(t, servers...))
			c := hold(t, l, "held", 1000, 15*time.Second)
			stop := c.claim(etcd.New(connect(t, servers...)))
			d := watchDead(t, servers)
			d.die(l, "before", 100, ttl, time.Second)
			before := d.late(100)
			d.die(l, "after", 100, ttl, ttl)
			repair := fault(t, etcdtest.Leader(t, servers))
			after := d.late(100)
			repair()
			time.Sleep(2 * time.Second) // the server joins the others again
			stop()
			t.Logf("%s: of %d leases, %d were lost and %d granted twice; keys were free after their TTL of %v by %v, and %v with the leader %s",
				name, len(c.leases), c.lost(), c.takeover(), ttl, before, after, name)
			require.Zero(t, c.lost())
			require.Zero(t, c.takeover())
			c.end()
		})
	}
}

// The dead are holders that have claimed a key, and do nothing more.
type dead struct {
	t *testing.T

	mu   sync.Mutex
	due  map[string]time.Time // when a TTL ends, by keys, counted from before the request
	free map[string]time.Time
}

// watchDead watches what becomes of the keys of dead holders, on each server.
func watchDead(t *testing.T, servers []*etcdtest.Server) *dead {
	d := &dead{t: t, due: map[string]time.Time{}, free: map[string]time.Time{}}
	ctx, cancel := context.WithCancel(t.Context())
	var watches sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		watches.Wait()
	})
	for _, s := range servers {
		changes := connect(t, s).Watch(ctx, "onerun/h/", clientv3.WithPrefix(), clientv3.WithFilterPut())
		watches.Go(func() {
			for change := range changes {
				for _, e := range change.Events {
					key, _, _ := strings.Cut(strings.TrimPrefix(string(e.Kv.Key), "onerun/h/"), "\x00")
					d.noteFree(key, time.Now())
				}
			}
		})
	}
	return d
}

// noteFree notes when a key is free, by the first server that tells.
func (d *dead) noteFree(key string, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.free[key].IsZero() {
		d.free[key] = now
	}
}

// die has n holders claim a key each, one after another.
func (d *dead) die(l *etcd.Locker, name string, n int, ttl, over time.Duration) {
	d.mu.Lock()
	clear(d.due)
	d.mu.Unlock()
	for i := range n {
		c := claim(fmt.Sprint(name, i))
		c.TTL = ttl
		due := time.Now().Add(ttl)
		answer, err := l.TryAcquire(within(d.t, 10*time.Second), c)
		require.NoError(d.t, err)
		require.Equal(d.t, driver.Granted, answer.State)
		d.mu.Lock()
		d.due[c.Key] = due
		d.mu.Unlock()
		time.Sleep(over / time.Duration(n))
	}
}

// late waits until n keys are free, and returns by how much that was later than their TTL.
func (d *dead) late(n int) string {
	var late []time.Duration
	require.Eventually(d.t, func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		late = late[:0]
		for key, due := range d.due {
			if at := d.free[key]; !at.IsZero() {
				late = append(late, at.Sub(due).Round(10*time.Millisecond))
			}
		}
		return len(late) == n
	}, 60*time.Second, 10*time.Millisecond)
	slices.Sort(late)
	require.Positive(d.t, late[0], "a key was free before its TTL had passed")
	return fmt.Sprintf("%v (median) and %v (most)", late[n/2], late[n-1])
}
