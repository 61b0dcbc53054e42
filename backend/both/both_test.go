package both_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/both"
	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/backend/redlock"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	"github.com/seed-1795987d/onerun/inspect"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

func claim(key string) driver.Claim {
	id := rand.Text()
	return driver.Claim{Key: key, ID: id, Owner: id, TTL: time.Minute}
}

// A pair is a Locker on two stores in memory, whose calls a test can change.
type pair struct {
	*both.Locker
	old, next *guardtest.Scripted
}

func newPair() pair {
	p := pair{old: &guardtest.Scripted{Inner: memory.New()}, next: &guardtest.Scripted{Inner: memory.New()}}
	p.Locker = both.New(p.old, p.next)
	return p
}

func (p pair) mustAcquire(t *testing.T, l guard.Locker, c driver.Claim) driver.Answer {
	t.Helper()
	g, err := l.TryAcquire(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, driver.Granted, g.State)
	return g
}

// isFree reports whether the key "k" is free on a side.
func isFree(t *testing.T, side guard.Locker) bool {
	t.Helper()
	c := claim("k")
	g, err := side.TryAcquire(t.Context(), c)
	require.NoError(t, err)
	if g.State == driver.Granted {
		_, err = side.Release(t.Context(), c, driver.After{})
		require.NoError(t, err)
	}
	return g.State == driver.Granted
}

var errDown = errors.New("down")

func TestTryAcquire_givesTheFirstBackIfTheSecondDoesNotGrant(t *testing.T) {
	t.Run("busy", func(t *testing.T) {
		p := newPair()
		p.mustAcquire(t, p.next.Inner, driver.Claim{Key: "k", ID: "theirs", Owner: "o", TTL: time.Minute, Label: "of next"})
		g, err := p.TryAcquire(t.Context(), claim("k"))
		require.NoError(t, err)
		require.Equal(t, driver.Busy, g.State)
		require.Equal(t, "of next", g.Label)
		require.True(t, isFree(t, p.old.Inner))
	})
	t.Run("done", func(t *testing.T) {
		p := newPair()
		c := claim("k")
		p.mustAcquire(t, p.next.Inner, c)
		_, err := p.next.Inner.Release(t.Context(), c, driver.After{Keep: time.Hour, Done: true, Record: []byte("r")})
		require.NoError(t, err)
		g, err := p.TryAcquire(t.Context(), claim("k"))
		require.NoError(t, err)
		require.Equal(t, driver.Done, g.State)
		require.Equal(t, "r", string(g.Record))
		require.True(t, isFree(t, p.old.Inner))
	})
	t.Run("no answer", func(t *testing.T) {
		p := newPair()
		p.next.OnAcquire = func(context.Context, int, driver.Claim) (driver.Answer, error) {
			return driver.Answer{}, &driver.StoreError{Kind: driver.KindReadOnly, Err: errDown}
		}
		_, err := p.TryAcquire(t.Context(), claim("k"))
		var refused *guard.StoreError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, "both", refused.Backend)
		require.Equal(t, driver.KindReadOnly, refused.Kind)
		require.ErrorIs(t, err, errDown)
		require.ErrorContains(t, err, "the next backend")
		require.True(t, isFree(t, p.old.Inner))
	})
	t.Run("no answer, and a quorum that revokes", func(t *testing.T) {
		p := newPair()
		p.next.OnAcquire = func(context.Context, int, driver.Claim) (driver.Answer, error) {
			return driver.Answer{}, &driver.StoreError{Kind: driver.KindQuorum, Revoked: true, Err: errDown}
		}
		revoked := func() bool {
			_, err := p.TryAcquire(t.Context(), claim("k"))
			var failed *guard.StoreError
			require.ErrorAs(t, err, &failed)
			return failed.Revoked
		}
		require.True(t, revoked())
		require.True(t, isFree(t, p.old.Inner))
		p.old.OnRelease = func(context.Context, int, driver.Claim, driver.After) (bool, error) { return false, errDown }
		require.False(t, revoked(), "the old side may still hold it")
	})
	t.Run("the lower fence is not raised", func(t *testing.T) {
		for _, low := range []string{"old", "next"} {
			p := newPair()
			side, high := p.old, p.next
			if low == "next" {
				side, high = p.next, p.old
			}
			ahead(t, high.Inner)
			side.OnRenew = func(context.Context, int, driver.Claim) (bool, error) { return false, errDown }
			_, err := p.TryAcquire(t.Context(), claim("k"))
			require.ErrorIs(t, err, errDown)
			side.OnRenew = func(context.Context, int, driver.Claim) (bool, error) { return false, nil }
			_, err = p.TryAcquire(t.Context(), claim("k"))
			require.ErrorIs(t, err, guard.ErrStore)
			require.True(t, isFree(t, p.old.Inner))
			require.True(t, isFree(t, p.next.Inner))
		}
	})
	t.Run("and cannot be released", func(t *testing.T) {
		p := newPair()
		p.mustAcquire(t, p.next.Inner, claim("k"))
		p.old.OnRelease = func(context.Context, int, driver.Claim, driver.After) (bool, error) { return false, errDown }
		_, err := p.TryAcquire(t.Context(), claim("k"))
		require.ErrorIs(t, err, errDown, "Busy would say that the claim is over")
	})
}

// ahead makes the fences of a store run an hour ahead of its clock.
func ahead(t *testing.T, l guard.Locker) {
	t.Helper()
	c := claim("ahead")
	g, err := l.TryAcquire(t.Context(), c)
	require.NoError(t, err)
	c.Fence = g.Fence + 3600<<20
	held, err := l.Renew(t.Context(), c)
	require.NoError(t, err)
	require.True(t, held)
	_, err = l.Release(t.Context(), c, driver.After{})
	require.NoError(t, err)
}

// A process of any stage has a fence above all that processes of its stage and of the one before
// had, with those that they reserve, and with fences in use that were raised, whichever store is
// ahead.
func TestFences_growAcrossTheStages(t *testing.T) {
	for _, which := range []string{"none", "old", "next"} {
		t.Run(which+" is ahead", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for range 50 {
					p := newPair()
					switch which {
					case "old":
						ahead(t, p.old.Inner)
					case "next":
						ahead(t, p.next.Inner)
					}
					var last uint64
					for _, mixture := range [][]guard.Locker{
						{p.old.Inner},
						{p.old.Inner, p.Locker},
						{p.Locker},
						{p.Locker, p.next.Inner},
						{p.next.Inner},
						{p.next.Inner, p.Locker},
						{p.Locker},
						{p.Locker, p.old.Inner},
						{p.old.Inner},
					} {
						for range 5 {
							l := mixture[mathrand.N(len(mixture))]
							c := claim("k")
							c.Fences.Reserve = mathrand.N(3) * 100
							g := p.mustAcquire(t, l, c)
							require.Greater(t, g.Fence, last)
							last = g.Fence + uint64(g.Reserved)
							if mathrand.N(2) == 0 { // it was handed off
								c.Fence, c.Fences.Reserve = last+1, mathrand.N(100)
								held, err := l.Renew(t.Context(), c)
								require.NoError(t, err)
								require.True(t, held)
								last = c.Fence + uint64(c.Fences.Reserve)
							}
							held, err := l.Release(t.Context(), c, driver.After{})
							require.NoError(t, err)
							require.True(t, held)
							// of virtual time: the clocks go on by a random amount
							time.Sleep(time.Duration(mathrand.N(int64(time.Second))))
						}
					}
				}
			})
		})
	}
}

func TestTryAcquire_takesTwoCallsIfTheClocksAgree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair()
		for range 10 {
			c := claim("k")
			c.Fences.Reserve = 100
			p.mustAcquire(t, p, c)
			held, err := p.Release(t.Context(), c, driver.After{})
			require.NoError(t, err)
			require.True(t, held)
			time.Sleep(150 * time.Millisecond) // fences that are reserved are ahead of the clock
		}
		for _, side := range []*guardtest.Scripted{p.old, p.next} {
			for _, call := range side.Calls() {
				require.NotEqual(t, driver.OpRenew, call.Op)
			}
		}
	})
}

func TestRenew_isLostIfEitherSideHasLost(t *testing.T) {
	for _, lost := range []string{"old", "next"} {
		p := newPair()
		c := claim("k")
		p.mustAcquire(t, p, c)
		side, other := p.old, p.next
		if lost == "next" {
			side, other = p.next, p.old
		}
		other.OnRenew = func(context.Context, int, driver.Claim) (bool, error) { return false, errDown }
		held, err := p.Renew(t.Context(), c)
		require.ErrorIs(t, err, errDown)
		require.False(t, held)

		_, err = side.Inner.Release(t.Context(), c, driver.After{})
		require.NoError(t, err)
		held, err = p.Renew(t.Context(), c)
		require.NoError(t, err, "it is lost, whatever the other side answers")
		require.False(t, held)
		held, err = p.Release(t.Context(), c, driver.After{})
		require.NoError(t, err)
		require.False(t, held)
		require.True(t, isFree(t, other.Inner))
	}
}

func TestRelease_asksTheOldSideThoughTheNextOneDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair()
		c := claim("k")
		p.mustAcquire(t, p, c)
		p.next.OnRelease = func(ctx context.Context, _ int, _ driver.Claim, _ driver.After) (bool, error) {
			<-ctx.Done()
			return false, ctx.Err()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := p.Release(ctx, c, driver.After{})
		require.ErrorIs(t, err, guard.ErrStore)
		require.True(t, isFree(t, p.old.Inner))
		p.next.OnRelease = nil
		_, err = p.Release(t.Context(), c, driver.After{})
		require.NoError(t, err)
		require.True(t, isFree(t, p))
	})
}

// A Guard reports no loss for a release that one side has answered only at the second try.
func TestGuard_releasesAgainAfterAnErrorOfOneSide(t *testing.T) {
	for _, failing := range []string{"old", "next"} {
		for _, after := range []struct {
			name string
			opts []guard.Option
		}{{"plain", nil}, {"once", []guard.Option{guard.WithOnce(time.Hour)}}} {
			t.Run(failing+" "+after.name, func(t *testing.T) {
				p := newPair()
				side := p.old
				if failing == "next" {
					side = p.next
				}
				side.OnRelease = func(ctx context.Context, n int, c driver.Claim, a driver.After) (bool, error) {
					if n == 1 {
						return false, errDown
					}
					return side.Inner.Release(ctx, c, a)
				}
				g := newGuard(t, p)
				require.NoError(t, g.Do(t.Context(), "k", func(context.Context) error { return nil }, after.opts...))
				require.Equal(t, after.opts == nil, isFree(t, p.old.Inner))
				require.Equal(t, after.opts == nil, isFree(t, p.next.Inner))
			})
		}
	}
}

// While a side is frozen, calls end with their contexts, and nothing is granted.
func TestFrozenSide_grantsNothingAndBlocksNobodyOnTheOther(t *testing.T) {
	t.Parallel()
	for i, name := range []string{"old", "next"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers := redistest.StartN(t, 2)
			lockers := []guard.Locker{single.New(servers[0].Client(t)), single.New(servers[1].Client(t))}
			l := both.New(lockers[0], lockers[1])
			require.True(t, isFree(t, l)) // it is connected
			servers[i].Freeze()
			thaw := servers[i].Thaw
			defer thaw()
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			start := time.Now()
			_, err := l.TryAcquire(ctx, claim("k"))
			require.ErrorIs(t, err, guard.ErrStore)
			require.Less(t, time.Since(start), 10*time.Second)
			require.True(t, isFree(t, lockers[1-i]), "the claim on the other side was released")
		})
	}
}

// The holder holds the key on the next side only. Waiters get the key on the old side, are refused
// on the next side, and release the old side again. These releases wake none of them.
func TestSubscribe_waitersDoNotWakeEachOther(t *testing.T) {
	t.Parallel()
	servers := redistest.StartN(t, 2)
	next := newGuard(t, single.New(servers[1].Client(t)), guard.WithTTL(10*time.Minute))
	lease, err := next.Acquire(t.Context(), "k")
	require.NoError(t, err)
	var asked []*guardtest.Scripted
	ran := make(chan error, 5)
	for range cap(ran) {
		old := &counting{Locker: single.New(servers[0].Client(t)), Scripted: &guardtest.Scripted{}}
		old.Inner = old.Locker
		asked = append(asked, old.Scripted)
		g := newGuard(t, both.New(old, single.New(servers[1].Client(t))), guard.WithTTL(10*time.Minute), guard.WithWait(guard.Forever))
		go func() { ran <- g.Do(t.Context(), "k", func(context.Context) error { return nil }) }()
	}
	total := func() (n int) {
		for _, a := range asked {
			for _, call := range a.Calls() {
				if call.Op == driver.OpAcquire {
					n++
				}
			}
		}
		return n
	}
	require.Eventually(t, func() bool { // all wait, and have calmed down
		before := total()
		// no event says that a waiter has calmed down
		time.Sleep(300 * time.Millisecond)
		return before >= 2*cap(ran) && total() == before
	}, time.Minute, time.Millisecond)
	require.Less(t, total(), 20*cap(ran))
	start := time.Now()
	require.NoError(t, lease.Release(t.Context()))
	for range cap(ran) {
		select {
		case err := <-ran:
			require.NoError(t, err)
		case <-time.After(time.Minute - time.Since(start)): // far less than half of the TTL
			require.Fail(t, "a waiter was not notified")
		}
	}
}

// A counting Locker has the abilities of a Locker, and the calls of a Scripted.
type counting struct {
	*single.Locker
	*guardtest.Scripted
}

func (c *counting) TryAcquire(ctx context.Context, claim driver.Claim) (driver.Answer, error) {
	return c.Scripted.TryAcquire(ctx, claim)
}

func (c *counting) Renew(ctx context.Context, claim driver.Claim) (bool, error) {
	return c.Scripted.Renew(ctx, claim)
}

func (c *counting) Release(ctx context.Context, claim driver.Claim, after driver.After) (bool, error) {
	return c.Scripted.Release(ctx, claim, after)
}

// A notifying store notifies when the test says so.
type notifying struct {
	*guardtest.Scripted
	notify func()
}

func (n *notifying) Subscribe(_, _ string, notify func(time.Duration)) (stop func()) {
	n.notify = func() { notify(0) }
	return func() { n.notify = func() {} }
}

func TestSubscribe_wakesForTheSideThatHasRefused(t *testing.T) {
	sides := [2]*notifying{{Scripted: &guardtest.Scripted{Inner: memory.New()}}, {Scripted: &guardtest.Scripted{Inner: memory.New()}}}
	old, next := sides[0], sides[1]
	l := both.New(old, next)
	woken := 0
	stop := l.Subscribe("k", "", func(time.Duration) { woken++ })
	wakes := func(want int, notify ...func()) {
		t.Helper()
		woken = 0
		for _, n := range notify {
			n()
		}
		require.Equal(t, want, woken)
	}
	refused := func() {
		t.Helper()
		g, err := l.TryAcquire(t.Context(), claim("k"))
		require.NoError(t, err)
		require.Equal(t, driver.Busy, g.State)
	}
	wakes(0, old.notify, old.notify) // a release on the other side would go unnoticed
	wakes(1, next.notify)
	wakes(2, old.notify, next.notify)

	onNext := claim("k")
	_, err := next.Inner.TryAcquire(t.Context(), onNext)
	require.NoError(t, err)
	old.OnRelease = func(ctx context.Context, _ int, c driver.Claim, after driver.After) (bool, error) {
		defer old.notify() // while the claim has no answer yet
		return old.Inner.Release(ctx, c, after)
	}
	wakes(0, refused)
	wakes(0, old.notify)
	wakes(1, next.notify)
	next.OnAcquire = func(ctx context.Context, _ int, c driver.Claim) (driver.Answer, error) {
		defer next.notify() // the key is free by the time that the answer is there
		return next.Inner.TryAcquire(ctx, c)
	}
	wakes(1, refused)

	_, err = next.Inner.Release(t.Context(), onNext, driver.After{})
	require.NoError(t, err)
	_, err = old.Inner.TryAcquire(t.Context(), claim("k"))
	require.NoError(t, err)
	wakes(0, refused, next.notify)
	wakes(1, old.notify)
	notify := old.notify
	stop()
	stop()
	wakes(1, notify) // one more is allowed
	require.NotPanics(t, refused)

	polls := both.New(old, memory.New())
	wakes(0, func() { polls.Subscribe("k", "", func(time.Duration) { woken++ }) }, old.notify)
}

// A waiter of each stage is notified of the release by a holder of each neighbouring stage.
func TestSubscribe_wakesWaitersOfNeighbouringStages(t *testing.T) {
	t.Parallel()
	servers := redistest.StartN(t, 2)
	stage := func(name string) guard.Locker {
		return rollouts[0].locker(name, servers[0].Client(t), servers[1].Client(t))
	}
	for _, pair := range [][2]string{{"old", "both"}, {"both", "old"}, {"both", "both"}, {"both", "next"}, {"next", "both"}} {
		t.Run(fmt.Sprint(pair), func(t *testing.T) {
			t.Parallel()
			key := fmt.Sprint(pair)
			holder := newGuard(t, stage(pair[0]), guard.WithTTL(10*time.Minute))
			waiter := newGuard(t, stage(pair[1]), guard.WithTTL(10*time.Minute), guard.WithWait(guard.Forever))
			for range 3 {
				lease, err := holder.Acquire(t.Context(), key)
				require.NoError(t, err)
				ran := make(chan error, 1)
				go func() { ran <- waiter.Do(t.Context(), key, func(context.Context) error { return nil }) }()
				time.Sleep(100 * time.Millisecond) // so that it waits; it is woken in any case
				require.NoError(t, lease.Release(t.Context()))
				select {
				case err := <-ran:
					require.NoError(t, err)
				case <-time.After(time.Minute):
					require.Fail(t, "the waiter was not notified")
				}
			}
		})
	}
}

// A ledger knows what processes with one side alone have written there, and so does each side.
func TestLedger_isThatOfBothSides(t *testing.T) {
	old, next := memory.New(), memory.New()
	l := both.New(old, next)
	append1 := func(to driver.Ledger, at int64, record string) {
		require.NoError(t, to.Append(t.Context(), "job", driver.Entry{At: at, Record: []byte(record)}, 10))
	}
	append1(old, 1, "old")
	append1(l, 2, "both")
	append1(next, 3, "next")
	entries, err := driver.Entries(t.Context(), l, "job", 10)
	require.NoError(t, err)
	require.Equal(t, []driver.Entry{{At: 3, Record: []byte("next")}, {At: 2, Record: []byte("both")}, {At: 1, Record: []byte("old")}}, entries)

	_, err = old.Raise(t.Context(), "job", "tick", 100)
	require.NoError(t, err)
	was, err := l.Raise(t.Context(), "job", "tick", 50)
	require.NoError(t, err)
	require.EqualValues(t, 100, was)
	was, err = next.Raise(t.Context(), "job", "tick", 0)
	require.NoError(t, err)
	require.EqualValues(t, 100, was, "how far the job has come")
}

func TestNew_refusesWhatCannotWork(t *testing.T) {
	m := memory.New()
	for want, l := range map[string]*both.Locker{
		"from: must not be nil": both.New(nil, m),
		"to: must not be nil":   both.New(m, (*memory.Locker)(nil)),
		"the same Locker":       both.New(m, m),
		"client":                both.New(m, single.New(nil)),
		"nodes(0): must be three at least: of fe": both.New(redlock.New(nil), m),
	} {
		_, err := guard.New(l)
		require.ErrorContains(t, err, want)
	}
	g := newGuard(t, both.New(m, memory.New()))
	nothing := func(context.Context) error { return nil }
	var bad *guard.SettingError
	require.ErrorAs(t, g.Do(t.Context(), "k", nothing, guard.WithFair()), &bad)
	require.ErrorAs(t, g.Do(t.Context(), "k", nothing, guard.WithLimit(2)), &bad)
	var key *guard.KeyError
	require.ErrorAs(t, g.Do(t.Context(), "a{b", nothing), &key)
	named, err := guard.New(both.New(m, memory.New()), guard.WithNamespace("test"))
	require.NoError(t, err)
	_, err = inspect.New(named)
	require.ErrorContains(t, err, "cannot show its keys")
	_, err = both.New(m, &guardtest.Scripted{}).Raise(t.Context(), "job", "tick", 0)
	require.ErrorContains(t, err, "the next backend")
	require.ErrorContains(t, err, string(driver.KindUnsupported))
}
