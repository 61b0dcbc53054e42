package slow_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

func TestMain(m *testing.M) {
	redistest.AtOnce(64) // they wait
	redistest.VerifyNoLeaks(m)
}

const page = "../../../docs/options.md"

var (
	measure = flag.Bool("measure", false, "log which shares of the TTL a round trip may take, and assert nothing")
	ttl     = flag.Duration("lease", 4*time.Second, "the TTL")
)

// A slow link costs no lease, up to what docs/options.md says.
func TestSlow_aLinkCostsNothing(t *testing.T) {
	t.Parallel()
	docs, err := os.ReadFile(page)
	require.NoError(t, err)
	for _, s := range stores {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			open := s.start(t)
			if *measure {
				s.measure(t, open)
				return
			}
			require.Contains(t, string(docs), fmt.Sprintf("| %s | TTL / %d | TTL / %d |", s.name, s.cold, s.warm))
			for name, parts := range map[string]time.Duration{"cold": s.cold, "warm": s.warm} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					requireKept(t, func(ttl time.Duration) error {
						// The rest is for a busy machine.
						_, err := run(t, open(t), name == "warm", ttl, ttl/parts*9/10)
						return err
					})
				})
			}
		})
	}
}

// requireKept fails unless a run keeps its lease. Round trips take a share of the TTL, and what the
// machine or a server is held up for does not: so a run that has lost its lease is tried again,
// with a TTL that is twice as long, and no longer: drivers give up on a round trip of three
// seconds. If a call made one round trip too many, each of the runs would lose its lease.
func requireKept(t *testing.T, run func(ttl time.Duration) error) {
	t.Helper()
	for try, lease := 1, *ttl; ; try, lease = try+1, 2**ttl {
		err := run(lease)
		if err == nil {
			return
		}
		t.Logf("with a TTL of %v: %v", lease, err)
		require.Less(t, try, 6, "no run has kept its lease")
	}
}

// measure logs which round trips cost no lease, in thousandths of the TTL.
func (s store) measure(t *testing.T, open func(t testing.TB) opened) {
	for _, name := range []string{"cold", "warm"} {
		for _, share := range []int{20, 30, 40, 50, 62, 71, 83, 90, 100, 125, 142, 166, 180, 190, 200, 210, 225, 250, 280, 310, 340} {
			t.Run(fmt.Sprintf("%s/%d", name, share), func(t *testing.T) {
				t.Parallel()
				took, err := run(t, open(t), name == "warm", *ttl, *ttl/1000*time.Duration(share))
				t.Logf("%s, %s, %d: granted after %v, %v", s.name, name, share, took, err)
			})
		}
	}
}

// run has work that needs renewals, and returns how long the grant took.
func run(t *testing.T, o opened, warm bool, ttl, roundTrip time.Duration) (took time.Duration, err error) {
	g, err := guard.New(o.locker, guard.WithTTL(ttl))
	require.NoError(t, err)
	key := fmt.Sprint(t.Name(), time.Now())
	if warm {
		require.NoError(t, o.connect(t.Context()))
		// The same key is on the same node of a Cluster.
		require.NoError(t, g.Do(t.Context(), key, func(context.Context) error { return nil }))
	}
	o.link.setDelay(roundTrip)
	begun := time.Now()
	err = g.Do(t.Context(), key, func(ctx context.Context) error {
		took = time.Since(begun)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(3 * ttl / 2):
			return nil
		}
	})
	o.link.setDelay(0)
	if err := g.Close(t.Context()); !*measure {
		require.NoError(t, err)
	}
	return took, err
}
