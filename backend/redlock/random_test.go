package redlock_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/redlock"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// A resource refuses every fence that is lower than one it has seen, and remembers the holder of
// each fence.
type resource struct {
	mu       sync.Mutex
	highest  uint64 // that was used for a write
	granted  uint64 // that a worker has got
	owners   map[uint64]string
	refusals int
}

// known returns the highest fence that was granted so far.
func (r *resource) known() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.granted
}

// grant notes the holder of a fence, which is above known.
func (r *resource) grant(t *testing.T, fence, known uint64, owner string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	require.Greater(t, fence, known, "the fence of %s", owner)
	require.Empty(t, r.owners[fence], "a fence of two holders, of which one is %s", owner)
	r.owners[fence] = owner
	r.granted = max(r.granted, fence)
}

func (r *resource) write(fence uint64) (ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if fence < r.highest {
		r.refusals++
		return false
	}
	r.highest = fence
	return true
}

// Nodes fail at random, a minority at a time. The resource never refuses a holder whose lease is
// valid, unless nodes have forgotten held leases. In that case, the resource keeps the older
// holder out.
func TestFences_growOverRandomFailures(t *testing.T) {
	growOverRandomFailures(t, 6*time.Second, 10)
}

func TestWeekly_fencesGrowOverRandomFailures(t *testing.T) {
	redistest.Long(t)
	growOverRandomFailures(t, 40*time.Second, 80)
}

// growOverRandomFailures has nodes fail for so long, in virtual time, and wants more than so many
// leases.
func growOverRandomFailures(t *testing.T, span time.Duration, leases int) {
	t.Helper()
	kill, freeze, forget := (*box).kill, (*box).freeze, (*box).flush
	for _, c := range []struct {
		name   string
		faults []func(*box)
		spread time.Duration // of the nodes' clocks
		forget bool
	}{
		{name: "clocks agree", faults: []func(*box){kill, freeze}},
		{name: "clocks differ by 100ms", faults: []func(*box){kill, freeze}, spread: 100 * time.Millisecond},
		{name: "clocks differ by a second", faults: []func(*box){kill, freeze}, spread: time.Second},
		{name: "nodes forget", faults: []func(*box){kill, freeze, forget}, forget: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			seed := rand.Uint64()
			if v := os.Getenv("GUARDTEST_SEED"); v != "" {
				var err error
				seed, err = strconv.ParseUint(v, 10, 64)
				require.NoError(t, err)
			}
			t.Logf("to draw the same random numbers again: GUARDTEST_SEED=%d", seed)
			inBubble(t, 5, func(t *testing.T, _ *redlock.Locker, boxes []*box) {
				rng := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // repeatable
				for _, b := range boxes {
					b.ahead = time.Duration(rng.Int64N(int64(c.spread + 1)))
					b.answerAfter(func() time.Duration { return time.Duration(100+rand.IntN(1900)) * time.Microsecond })
				}
				r := &resource{owners: map[uint64]string{}}
				end := time.Now().Add(span)
				var workers sync.WaitGroup
				for i := range 4 {
					g := newGuard(t, redlock.New(nodesOf(boxes)), guard.WithTTL(randomTTL))
					rng := rand.New(rand.NewPCG(seed, uint64(i+1))) //nolint:gosec // repeatable
					workers.Go(func() {
						for time.Now().Before(end) {
							r.work(t, g, rng, fmt.Sprint("worker ", i), c.forget)
						}
					})
				}
				for time.Now().Before(end) {
					fault := c.faults[rng.IntN(len(c.faults))]
					for _, i := range rng.Perm(5)[:1+rng.IntN(2)] {
						fault(boxes[i])
					}
					time.Sleep(time.Duration(rng.Int64N(int64(3 * randomTTL))))
					for _, b := range boxes {
						b.heal()
					}
					time.Sleep(randomTTL) // until each lease is on all nodes again
				}
				workers.Wait()
				synctest.Wait()
				require.Greater(t, len(r.owners), leases, "leases")
				t.Logf("%d leases, %d writes refused", len(r.owners), r.refusals)
			})
		})
	}
}

const randomTTL = time.Second

// work takes the lease, if it can, and writes under it a few times.
func (r *resource) work(t *testing.T, g *guard.Guard, rng *rand.Rand, owner string, forgetful bool) {
	known := r.known()
	lease, err := g.Acquire(t.Context(), "k", guard.WithWait(time.Duration(rng.Int64N(int64(200*time.Millisecond)))+1))
	if err != nil {
		time.Sleep(time.Duration(rng.Int64N(int64(20 * time.Millisecond))))
		return
	}
	r.grant(t, lease.Fence(), known, owner)
	for range rng.IntN(4) {
		if lease.Valid() && !r.write(lease.Fence()) {
			require.True(t, forgetful, "%s was refused while its lease is valid", owner)
		}
		long := 20 * time.Millisecond
		if rng.IntN(20) == 0 {
			long = 2 * randomTTL
		}
		time.Sleep(time.Duration(rng.Int64N(int64(long))))
	}
	_ = lease.Release(t.Context())
}
