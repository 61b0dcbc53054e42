package reentrant_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/reentrant"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/clocktest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// A party makes claims of "k" on a server of its own.
type party struct {
	t      *testing.T
	server *redistest.Server
	locker *reentrant.Locker
	rdb    *redis.Client // to look with
	ttl    time.Duration
	clock  *clocktest.Clock // of clockedParty
}

func newParty(t *testing.T, opts ...reentrant.Option) *party {
	server := redistest.Start(t)
	return &party{t, server, reentrant.New(server.Client(t), opts...), server.Client(t), long, nil}
}

// clockedParty returns a party on a server with a clock of its own.
func clockedParty(t *testing.T) *party {
	server, clock := redistest.StartWithClock(t)
	return &party{t, server, reentrant.New(server.Client(t)), server.Client(t), long, clock}
}

// claim returns a claimant whose claim has the ID of its owner and a number.
func (p *party) claim(owner string, number, maxHolders int) *claimant {
	p.t.Helper()
	c := claims(p.t, p.locker, "k", owner, fmt.Sprint(owner, number), p.ttl)
	c.claim.MaxHolders = maxHolders
	return c
}

// take has owners, with one claim each, share the key.
func (p *party) take(maxHolders int, owners ...string) (all []*claimant) {
	p.t.Helper()
	for _, owner := range owners {
		c := p.claim(owner, 1, maxHolders)
		c.take()
		all = append(all, c)
	}
	return all
}

func (c *claimant) waiting() *claimant {
	c.claim.Queue = driver.Retried
	return c
}

func (c *claimant) requireBusy() driver.Answer {
	c.t.Helper()
	grant := c.ask()
	require.Equal(c.t, driver.Busy, grant.State, "%+v", grant)
	return grant
}

func releaseAll(t *testing.T, all ...*claimant) {
	t.Helper()
	for _, c := range all {
		require.True(t, c.release(driver.After{}), c.claim.ID)
	}
}

// requireNothing asserts that only the fence counter is left.
func (p *party) requireNothing() {
	p.t.Helper()
	require.Len(p.t, scan(p.t, p.rdb), 1)
}

// The holds of one owner count as one holder, and the smallest number of all counts.
func TestSharing_ofOwners(t *testing.T) {
	t.Parallel()
	const all = driver.Unlimited
	type hold struct {
		owner      string
		maxHolders int
	}
	for _, c := range []struct {
		holds   []hold
		claim   hold
		granted bool
		held    bool // it has the fence of its owner
	}{
		{[]hold{{"a", 2}, {"a", 2}}, hold{"b", 2}, true, false},
		{[]hold{{"a", 2}, {"b", 2}}, hold{"a", 2}, true, true},
		{[]hold{{"a", 2}, {"b", 2}, {"a", 2}}, hold{"c", 2}, false, false},
		{[]hold{{"a", 2}, {"b", 2}}, hold{"a", all}, true, true},
		{[]hold{{"a", all}, {"b", all}}, hold{"a", 2}, true, false},
		{[]hold{{"a", all}, {"b", all}, {"c", all}}, hold{"a", 2}, false, false},
		{[]hold{{"a", all}, {"b", all}, {"a", 2}}, hold{"c", all}, false, false},
		{[]hold{{"a", 2}, {"b", 2}}, hold{"a", 1}, false, false},
		{[]hold{{"a", 2}}, hold{"a", 1}, true, false},
		{[]hold{{"a", all}, {"a", 1}}, hold{"a", 1}, true, true},
		{[]hold{{"a", all}, {"a", 1}}, hold{"a", all}, true, true},
		{[]hold{{"a", all}, {"a", 1}}, hold{"b", all}, false, false},
		{[]hold{{"a", 1}}, hold{"a", 3}, true, true},
		{[]hold{{"a", 1}, {"a", 3}}, hold{"b", 3}, false, false},
	} {
		t.Run(fmt.Sprint(c.holds, c.claim), func(t *testing.T) {
			p := newParty(t)
			var held []*claimant
			var fence, highest uint64
			for i, h := range c.holds {
				claim := p.claim(h.owner, i, h.maxHolders)
				highest = max(highest, claim.take().Fence)
				if h.owner == c.claim.owner {
					fence = max(fence, claim.claim.Fence)
				}
				held = append(held, claim)
			}
			claim := p.claim(c.claim.owner, 9, c.claim.maxHolders)
			if !c.granted {
				left := claim.requireBusy().Left
				require.InDelta(t, long, left, near)
				return
			}
			g := claim.take()
			require.Equal(t, c.held, g.Held)
			if c.held {
				require.Equal(t, fence, g.Fence)
			} else {
				require.Greater(t, g.Fence, highest, "it is new to the key, or to holding it with so few")
			}
			releaseAll(t, append(held, claim)...)
			p.requireNothing()
		})
	}
}

// An owner that has the key alone as well has one fence, which is larger than those of readers
// before.
func TestSharing_anOwnerThatGetsTheKeyAloneHasALargerFence(t *testing.T) {
	t.Parallel()
	p := newParty(t)
	first := p.take(driver.Unlimited, "us")[0]
	reader := p.take(driver.Unlimited, "them")[0]
	alone := p.claim("us", 2, 1)
	alone.requireBusy()
	releaseAll(t, reader)
	require.Greater(t, alone.take().Fence, reader.claim.Fence)
	require.Equal(t, alone.claim.Fence, first.take().Fence, "one owner has one fence")
	alone.claim.Fence += 7
	require.True(t, alone.renew())
	require.Equal(t, alone.claim.Fence, first.take().Fence, "also if a renewal raises it")
	first.claim.Fence += 7
	require.True(t, first.renew())
	require.Equal(t, first.claim.Fence, alone.take().Fence, "of either hold")
	p.claim("them", 2, driver.Unlimited).requireBusy()
	releaseAll(t, alone)
	require.Greater(t, p.take(driver.Unlimited, "them")[0].claim.Fence, first.claim.Fence)
	require.True(t, first.renew())
}

func TestSharing_seatsOfOwners(t *testing.T) {
	t.Parallel()
	p := newParty(t)
	seat := func(owner string, number, maxHolders, want int) {
		t.Helper()
		require.Equal(t, want, p.claim(owner, number, maxHolders).take().Seat, "%s%d", owner, number)
	}
	seat("a", 1, 5, 1)
	seat("b", 1, 5, 2)
	seat("a", 2, 5, 1)
	seat("c", 1, 5, 3)
	seat("b", 2, 17, 0)
	releaseAll(t, p.claim("a", 1, 5))
	seat("d", 1, 5, 4)
	releaseAll(t, p.claim("a", 2, 5))
	seat("e", 1, 5, 1)
	releaseAll(t, p.claim("b", 1, 5))
	seat("f", 1, 5, 2)
	releaseAll(t, p.claim("c", 1, 5), p.claim("e", 1, 5))
	seat("f", 2, 3, 2)
	releaseAll(t, p.claim("b", 2, 17))
	seat("d", 2, 3, 1)
	seat("d", 2, 3, 1)
	require.True(t, p.claim("f", 2, 3).release(driver.After{Keep: time.Minute}))
	releaseAll(t, p.claim("f", 1, 5))
	seat("d", 3, 5, 1)
	seat("f", 3, 3, 3) // its minimum hold has a seat
}

func TestSharing_aMinimumHoldIsAHolderButNotItsOwners(t *testing.T) {
	t.Parallel()
	p := newParty(t)
	a, b := p.take(2, "a")[0], p.take(2, "b")[0]
	second := p.claim("a", 2, 2)
	second.take()
	require.True(t, a.release(driver.After{Keep: 20 * time.Second, Done: true, Record: []byte("no marker")}))
	require.True(t, a.release(driver.After{}), "a release that is repeated")
	a.requireBusy()
	require.False(t, a.renew())
	third := p.claim("a", 3, 2)
	third.take() // the owner counts once, with its minimum hold
	releaseAll(t, second, third, b)
	p.take(2, "b")
	grant := p.claim("a", 4, 2).requireBusy()
	require.InDelta(t, 20*time.Second, grant.Left, near)
	require.Equal(t, "label of a1", grant.Label)
	require.Equal(t, "a", grant.Holder)
}

// A wanted claim may wait for an owner that holds the key, so that owner is let in.
func TestSharing_anOwnerEntersAgainWhateverOthersWait(t *testing.T) {
	t.Parallel()
	p := newParty(t)
	p.take(3, "a", "b")
	writer := p.claim("w", 1, 1)
	writer.claim.Queue = driver.Queued
	require.Equal(t, driver.HeldForClaim, writer.requireBusy().Reason)
	p.claim("c", 1, 3).requireBusy()
	for i, queue := range []driver.QueueMode{driver.Unqueued, driver.YieldToQueue, driver.Queued} {
		again := p.claim("a", 2+i, 3)
		again.claim.Queue = queue
		require.True(t, again.take().Held)
		releaseAll(t, again)
	}
	require.Equal(t, driver.HeldForClaim, writer.requireBusy().Reason)
	require.False(t, writer.release(driver.After{}))
	p.take(3, "c")
}

func TestSharing_leavesNothingBehind(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(p *party, a, b *claimant){
		"released": func(_ *party, a, b *claimant) { releaseAll(t, a, b) },
		"expired": func(p *party, _, _ *claimant) {
			p.clock.Jump(p.ttl)
			require.Eventually(t, func() bool { return p.rdb.DBSize(t.Context()).Val() == 1 }, soon, time.Millisecond)
		},
		"wanted, then granted": func(p *party, a, b *claimant) {
			writer := p.claim("w", 1, 1).waiting()
			require.Equal(t, driver.HeldForClaim, writer.requireBusy().Reason)
			releaseAll(t, a, b)
			writer.take()
			releaseAll(t, writer)
		},
		"wanted, then released": func(p *party, a, b *claimant) {
			other := p.claim("o", 1, 2).waiting()
			require.Equal(t, driver.HeldForClaim, other.requireBusy().Reason)
			require.False(t, other.release(driver.After{}))
			releaseAll(t, a, b)
		},
		"wanted, then it no longer waits": func(p *party, a, b *claimant) {
			writer := p.claim("w", 1, 1).waiting()
			require.Equal(t, driver.HeldForClaim, writer.requireBusy().Reason)
			writer.claim.Queue = driver.Unqueued
			require.NotEqual(t, driver.HeldForClaim, writer.requireBusy().Reason)
			releaseAll(t, a, b)
		},
		"wanted, then the key is taken alone": func(p *party, a, b *claimant) {
			writer := p.claim("w", 1, 1).waiting()
			require.Equal(t, driver.HeldForClaim, writer.requireBusy().Reason)
			releaseAll(t, a, b)
			other := p.claim("o", 1, 1)
			other.take()
			require.NotEqual(t, driver.HeldForClaim, writer.requireBusy().Reason)
			releaseAll(t, other)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newParty(t)
			if name == "expired" {
				p = clockedParty(t)
			}
			a, b := p.take(2, "a")[0], p.take(driver.Unlimited, "b")[0]
			require.Len(t, scan(t, p.rdb), 2, "the lock and the fence counter")
			timeLeft(t, p.rdb, "k")
			leave(p, a, b)
			p.requireNothing()
		})
	}
}

// Holders that have died are removed when others come, although the key lasts.
func TestSharing_forgetsHoldersThatHaveDied(t *testing.T) {
	t.Parallel()
	p := clockedParty(t)
	const ttl = 30 * time.Second
	p.ttl = ttl
	for i := range 50 {
		p.take(driver.Unlimited, fmt.Sprint("dies", i))
	}
	p.ttl = long
	stays := p.take(driver.Unlimited, "stays")[0]
	p.clock.Jump(ttl)
	require.True(t, stays.renew())
	require.EqualValues(t, 51, p.rdb.HLen(t.Context(), "k").Val())
	p.take(2, "comes")
	require.EqualValues(t, 2, p.rdb.HLen(t.Context(), "k").Val())
	p.claim("third", 1, driver.Unlimited).requireBusy()
}

func TestSharing_theKeyLastsAsLongAsTheLongestNeeds(t *testing.T) {
	t.Parallel()
	p := newParty(t)
	brief, lasting := p.claim("brief", 1, 3), p.claim("lasting", 1, 3)
	brief.claim.TTL = 10 * time.Second
	requireLeft := func(want time.Duration) {
		t.Helper()
		require.InDelta(t, want, timeLeft(t, p.rdb, "k"), near)
	}
	brief.take()
	requireLeft(10 * time.Second)
	lasting.take()
	for _, extend := range []func() bool{brief.renew, func() bool { return brief.take().Held }} {
		require.True(t, extend())
		requireLeft(long)
		require.True(t, p.rdb.Persist(t.Context(), "k").Val())
		require.True(t, extend())
		requireLeft(long)
	}
	require.InDelta(t, 10*time.Second, p.claim("n", 1, 2).requireBusy().Left, near, "when the first may go")
	require.InDelta(t, long, p.claim("w", 1, 1).requireBusy().Left, near, "when all have gone")
	releaseAll(t, lasting)
	requireLeft(10 * time.Second)
	releaseAll(t, brief)
	p.requireNothing()
}

// After a server's clock was set back, its keys last for longer than any hold. A renewal corrects
// that, unless the key is also Redisson's: the lock of its holder lasts as long as the key.
func TestSharing_aRenewalCorrectsAKeyThatLastsTooLong(t *testing.T) {
	t.Parallel()
	p := newParty(t)
	brief, lasting := p.claim("brief", 1, 3), p.claim("lasting", 1, 3)
	brief.claim.TTL = 10 * time.Second
	brief.take()
	lasting.take()
	requireRenewed := func(want time.Duration) {
		t.Helper()
		require.True(t, p.rdb.PExpire(t.Context(), "k", time.Hour).Val())
		require.True(t, brief.renew())
		require.InDelta(t, want, timeLeft(t, p.rdb, "k"), near)
	}
	requireRenewed(long)
	releaseAll(t, lasting)
	requireRenewed(10 * time.Second)
	require.NoError(t, p.rdb.HSet(t.Context(), "k", "0b1c:1", "1").Err())
	requireRenewed(time.Hour)
}

// The holders expire by their own times, whatever the TTLs of the keys are.
func TestSharing_expiresAlthoughTheKeysWerePersisted(t *testing.T) {
	t.Parallel()
	p := clockedParty(t)
	held := p.take(2, "a", "b")
	require.Equal(t, driver.HeldForClaim, p.claim("w", 1, 1).waiting().requireBusy().Reason)
	for _, key := range scan(t, p.rdb) {
		p.rdb.Persist(t.Context(), key)
	}
	p.clock.Jump(long)
	require.False(t, held[0].renew())
	require.False(t, held[1].release(driver.After{}))
	p.take(driver.Unlimited, "d")
	timeLeft(t, p.rdb, "k")
}

func TestSharing_aKeyThatRedissonOrAnApplicationHoldsIsBusy(t *testing.T) {
	t.Parallel()
	p := newParty(t)
	for _, hash := range []map[string]string{
		{"0b1c:1": "1"}, {"mode": "write"}, {"mode": "read", "0b1c:1": "1"}, {"colour": "blue"}, {"onerun:a1": "S1 2 3,4 x"},
	} {
		require.NoError(t, p.rdb.HSet(t.Context(), "k", hash).Err())
		for _, maxHolders := range []int{1, 2, driver.Unlimited} {
			for _, queue := range []driver.QueueMode{driver.Unqueued, driver.Queued} {
				c := p.claim("a", 1, maxHolders).waiting()
				c.claim.Queue = queue
				grant := c.requireBusy()
				require.NotEqual(t, driver.HeldForClaim, grant.Reason)
				require.Negative(t, grant.Left, "it never ends")
				require.False(t, c.renew())
				require.False(t, c.release(driver.After{}))
			}
		}
		require.Equal(t, hash, p.rdb.HGetAll(t.Context(), "k").Val())
		require.NoError(t, p.rdb.Del(t.Context(), "k").Err())
	}
	require.NoError(t, p.rdb.LPush(t.Context(), "k", "foreign").Err())
	c := p.claim("a", 1, 2)
	_, err := p.locker.TryAcquire(t.Context(), c.claim)
	var failed *guard.StoreError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, driver.KindWrongType, failed.Kind)
	require.False(t, c.renew())
	require.False(t, c.release(driver.After{}))
}

// An RReadWriteLock counts no limits, so what one kind of Locker shares is busy to the other.
func TestSharing_besideALockerWithReadWrite(t *testing.T) {
	t.Parallel()
	p := newParty(t)
	with := reentrant.New(p.server.Client(t), reentrant.WithReadWrite())
	ours, theirs := p.claim("a", 1, driver.Unlimited), reader(t, with, "b", "b1")
	for _, c := range [][2]*claimant{{ours, theirs}, {theirs, ours}} {
		first, second := c[0], c[1]
		first.take()
		second.requireBusy()
		require.True(t, first.renew())
		releaseAll(t, first)
	}
}

func TestSharing_isServedByAServerWhoseMemoryIsFull(t *testing.T) {
	t.Parallel()
	p := newParty(t)
	held := p.take(3, "a", "b")
	require.NoError(t, p.rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	_, err := p.locker.TryAcquire(t.Context(), p.claim("c", 1, 3).claim)
	var failed *guard.StoreError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, driver.KindOOM, failed.Kind)
	require.NotEqual(t, driver.HeldForClaim, p.claim("w", 1, 1).waiting().requireBusy().Reason, "it is refused, although it cannot be noted")
	require.True(t, held[0].take().Held)
	held[1].claim.Fence += 7
	require.True(t, held[1].renew())
	require.True(t, held[1].release(driver.After{Keep: time.Minute}))
	releaseAll(t, held[0])
	p.claim("d", 1, 1).requireBusy()
}

// The clock of the server is set back: the holders expire later, and nobody else gets in.
func TestSharing_staysHeldIfTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	p := clockedParty(t)
	a, b := p.take(2, "a")[0], p.take(driver.Unlimited, "b")[0]
	p.clock.Jump(-time.Hour)
	require.Greater(t, p.claim("c", 1, 2).requireBusy().Left, 59*time.Minute)
	require.True(t, a.renew())
	require.LessOrEqual(t, p.claim("c", 1, 2).requireBusy().Left, long)
	releaseAll(t, a)
	require.Greater(t, p.take(2, "d")[0].claim.Fence, b.claim.Fence)
	p.clock.Jump(2 * time.Hour)
	p.take(1, "e")
}

// A release wakes waiters only if one of them may be granted.
func TestSharing_publishesReleasesThatMatter(t *testing.T) {
	t.Parallel()
	p := newParty(t)
	published := redistest.Listen(t, p.rdb, "redisson_lock__channel:{k}")
	after := func(released ...*claimant) int {
		t.Helper()
		releaseAll(t, released...)
		return published()
	}

	all := p.take(driver.Unlimited, "a", "b", "c")
	require.Zero(t, after(all[0]), "others read on, and anybody might join them")
	require.Equal(t, 1, after(all[1:]...), "nobody is left")

	all = p.take(3, "a", "b", "c")
	require.Equal(t, 1, after(all[0]), "one more may come")
	require.Equal(t, 2, after(all[1:]...))

	all = p.take(driver.Unlimited, "a", "b", "c")
	require.True(t, all[0].release(driver.After{Keep: time.Minute}))
	require.Equal(t, 1, published(), "waiters learn how long it takes now")
	require.Equal(t, 1, after(all[1:]...), "only the minimum hold is left")
	requireState(t, p.locker, "others", driver.Busy)
	require.NoError(t, p.rdb.Del(t.Context(), "k").Err())

	all = p.take(driver.Unlimited, "a", "b", "c", "d")
	writer := p.claim("w", 1, 1).waiting()
	require.Equal(t, driver.HeldForClaim, writer.requireBusy().Reason)
	require.Zero(t, after(all[:2]...), "the writer waits for all of them")
	require.False(t, writer.release(driver.After{}))
	require.Equal(t, 1, published(), "readers were refused")
	require.Equal(t, driver.HeldForClaim, writer.requireBusy().Reason)
	require.Equal(t, 1, after(all[2:]...))
	writer.take()
	require.Equal(t, 1, after(writer))

	all = p.take(3, "a", "b", "c")
	few := p.claim("few", 1, 2).waiting()
	require.Equal(t, driver.HeldForClaim, few.requireBusy().Reason)
	require.Zero(t, after(all[0]), "two are left, and the claim that is wanted allows one other")
	require.Equal(t, 1, after(all[1]))
	few.take()
	require.Zero(t, published(), "nobody else may enter")
	require.Equal(t, 2, after(all[2], few))

	all = p.take(3, "a", "b")
	few = p.claim("few", 2, 2).waiting()
	require.Equal(t, driver.HeldForClaim, few.requireBusy().Reason)
	require.Equal(t, 2, after(all...))
	p.claim("c", 1, 3).requireBusy()
	few.take()
	require.Equal(t, 1, published(), "others were refused for it, and one of them may enter now")
}

// If an owner that shares the key no longer has it alone as well, others in the queue may enter.
func TestSharing_theQueueIsNotifiedWhenAnOwnerOnlyShares(t *testing.T) {
	t.Parallel()
	p := newParty(t)
	p.take(driver.Unlimited, "us")
	alone := p.claim("us", 2, 1)
	alone.claim.Queue = driver.Queued
	alone.take()
	waiter, notified := queued(t, p.locker, p.claim("them", 1, driver.Unlimited))
	waiter.requireBusy()
	releaseAll(t, alone)
	requireNotified(t, notified)
	waiter.take()
}

// The next waiter is notified when one was granted, if they may share the key.
func TestSharing_holdersEnterTogetherFromTheQueue(t *testing.T) {
	t.Parallel()
	p := newParty(t)
	holder := p.claim("holder", 1, 1)
	holder.claim.Queue = driver.Queued
	holder.take()
	var line []*claimant
	var notified []<-chan time.Duration
	for _, owner := range []string{"a", "b", "c"} {
		c, calls := queued(t, p.locker, p.claim(owner, 1, 2))
		c.requireBusy()
		line, notified = append(line, c), append(notified, calls)
	}
	releaseAll(t, holder)
	for i := range 2 {
		requireNotified(t, notified[i])
		line[i].take()
	}
	line[2].requireBusy()
	for len(notified[2]) > 0 {
		<-notified[2]
	}
	releaseAll(t, line[0])
	requireNotified(t, notified[2])
	line[2].take()
}

func TestSharing_startedCallsFindOutThatAKeyIsShared(t *testing.T) {
	t.Parallel()
	p := newParty(t)
	p.take(driver.Unlimited, "a")
	type answer struct {
		grant driver.Answer
		err   error
	}
	answers := make(chan answer, 1)
	start := func(c driver.Claim) answer {
		p.locker.Start(t.Context(), driver.OpAcquire, []driver.Claim{c}, driver.After{}, func(_ int, g driver.Answer, err error) { answers <- answer{g, err} })
		return <-answers
	}
	writer := p.claim("w", 1, 1)
	require.NotEqual(t, driver.HeldForClaim, start(writer.claim).grant.Reason)
	got := start(writer.waiting().claim)
	writer.claim.Repeated = true
	require.NoError(t, got.err)
	require.Equal(t, "label of a1", got.grant.Label)
	require.Equal(t, driver.HeldForClaim, got.grant.Reason)
	p.claim("b", 1, driver.Unlimited).requireBusy()
	released := make(chan bool, 1)
	p.locker.Start(t.Context(), driver.OpRelease, []driver.Claim{writer.claim}, driver.After{}, func(_ int, a driver.Answer, err error) { released <- a.Held || err != nil })
	require.False(t, <-released)
	p.take(driver.Unlimited, "b")
}

func TestSharing_fencesHintsAndReservesAreAsForOthers(t *testing.T) {
	t.Parallel()
	p := newParty(t)
	p.take(1, "first")[0].release(driver.After{})
	// a store without a counter is ahead of its clock, and reserves nothing
	require.NoError(t, p.rdb.Set(t.Context(), scan(t, p.rdb)[0], 1, 0).Err())
	last := p.take(3, "a")[0].claim.Fence
	c := p.claim("b", 1, 3)
	c.claim.Fences.Hint, c.claim.Fences.Reserve = last+1, 5
	g := c.ask()
	require.Equal(t, []any{c.claim.Fences.Hint, 5, 2}, []any{g.Fence, g.Reserved, g.Seat})
	require.GreaterOrEqual(t, g.Clock, g.Fence)
	again := c.ask()
	require.Equal(t, []any{g.Fence, 2, true, 0}, []any{again.Fence, again.Seat, again.Held, again.Reserved})
	given := p.claim("c", 1, 3)
	given.claim.Fence, given.claim.Fences.Reserve = g.Fence+1000, 7
	g = given.ask()
	require.Equal(t, []any{given.claim.Fence, 7}, []any{g.Fence, g.Reserved})
	given = p.claim("b", 2, 3)
	given.claim.Fence, given.claim.Fences.Reserve = g.Fence+2000, 7
	require.Equal(t, given.claim.Fence, given.ask().Fence, "as another node of a quorum has it")
	require.Equal(t, given.claim.Fence, c.ask().Fence)
	releaseAll(t, p.claim("a", 1, 3))
	require.Greater(t, p.take(3, "d")[0].claim.Fence, g.Fence+2007)
}

func TestSharing_aServerThatRestartedSharesNothing(t *testing.T) {
	t.Parallel()
	p := newParty(t, reentrant.WithMinUptime(time.Hour))
	_, err := p.locker.TryAcquire(t.Context(), p.claim("a", 1, 2).claim)
	var failed *guard.StoreError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, driver.KindRestarted, failed.Kind)
	require.Zero(t, p.rdb.DBSize(t.Context()).Val())
}

// Renewals of many holders read one field each, and share scripts.
func TestSharing_renewsManyHoldersCheaply(t *testing.T) {
	t.Parallel()
	p := newParty(t)
	p.locker.Warnings(t.Context()) // then it batches
	var held []driver.Claim
	for i := range 100 {
		held = append(held, p.take(driver.Unlimited, fmt.Sprint("reader", i))[0].claim)
	}
	p.server.ResetStats(t)
	driver.Await(t.Context(), p.locker, driver.OpRenew, held, driver.After{}, func(i int, a driver.Answer, err error) {
		if err != nil || !a.Held {
			t.Error(i, a, err)
		}
	})
	calls := p.server.Calls(t)
	require.Less(t, calls["evalsha"]+calls["eval"], int64(5))
	require.Zero(t, calls["hgetall"])
	require.EqualValues(t, 100, calls["hget"])
}
