package redlock_test

import (
	"context"
	"crypto/rand"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/backend/redlock"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

// A contested is a quorum of three stores in memory on which claims for the key "k" have met: the
// next ones begin with a probe of the first store.
type contested struct {
	*redlock.Locker
	stores []*guardtest.Scripted
	asked  []atomic.Int64 // by store
}

func newContested(t *testing.T) *contested {
	c := &contested{asked: make([]atomic.Int64, 3)}
	var nodes []guard.Locker
	for i := range 3 {
		s := &guardtest.Scripted{Inner: memory.New()}
		s.OnAcquire = func(ctx context.Context, _ int, claim driver.Claim) (driver.Answer, error) {
			c.asked[i].Add(1)
			return s.Inner.TryAcquire(ctx, claim)
		}
		c.stores, nodes = append(c.stores, s), append(nodes, s)
	}
	c.Locker = redlock.New(nodes)
	x, y := newClaim(), newClaim()
	c.hold(t, x, 0)
	c.hold(t, y, 1)
	grant, _ := c.ask(t, newClaim())
	require.Equal(t, driver.Undecided, grant.Reason)
	c.free(t, x, 0)
	c.free(t, y, 1)
	return c
}

func newClaim() driver.Claim {
	id := rand.Text()
	return driver.Claim{Key: "k", ID: id, Owner: id, TTL: time.Minute, Queue: driver.Retried}
}

// hold has a claim of another process hold the key on some of the stores.
func (c *contested) hold(t *testing.T, claim driver.Claim, at ...int) {
	t.Helper()
	for _, i := range at {
		grant, err := c.stores[i].Inner.TryAcquire(t.Context(), claim)
		require.NoError(t, err)
		require.Equal(t, driver.Granted, grant.State)
	}
}

func (c *contested) free(t *testing.T, claim driver.Claim, at ...int) {
	t.Helper()
	for _, i := range at {
		held, err := c.stores[i].Inner.Release(t.Context(), claim, driver.After{})
		require.NoError(t, err)
		require.True(t, held)
	}
}

// ask makes a claim, and waits until no call of it is under way. asked is how many calls each store
// was sent.
func (c *contested) ask(t *testing.T, claim driver.Claim) (grant driver.Answer, asked [3]int64) {
	t.Helper()
	for i := range c.asked {
		c.asked[i].Store(0)
	}
	grant, err := c.TryAcquire(t.Context(), claim)
	require.NoError(t, err)
	if grant.State == driver.Granted {
		_, err = c.Release(t.Context(), claim, driver.After{})
		require.NoError(t, err)
	}
	synctest.Wait()
	for i := range c.asked {
		asked[i] = c.asked[i].Load()
	}
	return grant, asked
}

func TestProbe_aClaimThatComesTooLateCostsOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newContested(t)
		for range 3 {
			holder := newClaim()
			c.hold(t, holder, 0, 1, 2)
			grant, asked := c.ask(t, newClaim())
			require.Equal(t, driver.Busy, grant.State)
			require.Empty(t, grant.Holder, "one node does not know it")
			require.Equal(t, [3]int64{1, 0, 0}, asked)
			c.free(t, holder, 0, 1, 2)
		}
		grant, asked := c.ask(t, newClaim())
		require.Equal(t, driver.Granted, grant.State)
		require.Equal(t, [3]int64{1, 1, 1}, asked)
	})
}

// A process that died while it claimed the key has left its claim on the first node alone.
func TestProbe_whatAMinorityHoldsKeepsNobodyAwayTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newContested(t)
		c.hold(t, newClaim(), 0)
		for i, want := range []driver.State{driver.Busy, driver.Granted, driver.Granted} {
			grant, _ := c.ask(t, newClaim())
			require.Equal(t, want, grant.State, "claim %d", i+1)
		}
	})
}

func TestProbe_aFirstNodeThatDoesNotAnswerHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newContested(t)
		c.stores[0].OnAcquire = func(ctx context.Context, _ int, _ driver.Claim) (driver.Answer, error) {
			<-ctx.Done()
			return driver.Answer{}, ctx.Err()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		start := time.Now()
		grant, err := c.TryAcquire(ctx, newClaim())
		require.NoError(t, err)
		require.Equal(t, driver.Granted, grant.State)
		require.LessOrEqual(t, time.Since(start), 10*time.Millisecond)
		time.Sleep(time.Minute) // virtual time, in which the first node's calls end
	})
}

// A claim that waits for holders that share the key must be marked as wanted on all nodes.
func TestProbe_aClaimThatWaitsForSharersAsksAllNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newContested(t)
		reader := newClaim()
		reader.MaxHolders = driver.Unlimited
		c.hold(t, reader, 0, 1, 2)
		grant, asked := c.ask(t, newClaim())
		require.Equal(t, driver.Busy, grant.State)
		require.Equal(t, driver.HeldForClaim, grant.Reason)
		require.Equal(t, [3]int64{1, 1, 1}, asked)
	})
}

// A claim that is not made again needs the answer of a majority. Claims that share a key, or an
// owner, may be granted a key that others hold.
func TestProbe_isOfClaimsThatWaitAndHoldAKeyAlone(t *testing.T) {
	for name, special := range map[string]func(*driver.Claim){
		"made once":  func(c *driver.Claim) { c.Queue = driver.Unqueued },
		"an owner's": func(c *driver.Claim) { c.Owner = "owner" },
		"one of two": func(c *driver.Claim) { c.MaxHolders = 2 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newContested(t)
				c.hold(t, newClaim(), 0, 1, 2)
				claim := newClaim()
				special(&claim)
				grant, asked := c.ask(t, claim)
				require.Equal(t, driver.Busy, grant.State)
				require.Equal(t, [3]int64{1, 1, 1}, asked)
			})
		})
	}
}
