package guardtest

import (
	"strconv"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard/driver"
)

func sharingChecks() []check {
	shares := func(b Backend) bool { return len(b.Shares) > 0 }
	shared := func(run func(s *subject, maxHolders int)) func(*subject) {
		return func(s *subject) {
			for _, maxHolders := range s.backend.Shares {
				run(s, maxHolders)
			}
		}
	}
	return []check{
		{name: "the Locker says which numbers of holders it grants", needs: shares, run: shared(saysWhatItShares)},
		{name: "a key has as many holders as its claims allow", needs: shares, run: shared(countsHolders)},
		{name: "as many claims as may hold a key are granted when they are made at once", needs: shares, run: shared(sharedAtOnce)},
		{name: "the smallest number of the holders and the claim counts", needs: shares, run: shared(smallestCounts)},
		{name: "a claim alone and a shared claim exclude each other", needs: shares, run: shared(aloneExcludes)},
		{name: "a repeated shared claim counts once", needs: shares, run: shared(sharedRepeatCountsOnce)},
		{name: "a shared holder has a seat of its own", needs: shares, run: shared(hasSeat)},
		{name: "a shared claim that has expired makes way for another", needs: shares, run: shared(sharedExpires)},
		{name: "a shared claim that is renewed is held", needs: shares, run: shared(sharedIsRenewed)},
		{name: "a minimum hold of a shared claim counts as a holder", needs: shares, run: shared(minHoldIsHolder)},
		{name: "a shared claim of a done key is answered like any other", needs: shares, run: shared(sharedFindsDone)},
		{name: "each holder of a shared key has a larger fence than those before", needs: shares, run: shared(sharedFencesGrow)},
		{name: "a claim that waits keeps later readers out", needs: shares, run: shared(wantedKeepsOut)},
		{name: "a claim that was wanted and has gone keeps nobody out", needs: shares, run: shared(wantedEnds)},
		{name: "shared claims are served in the order of the queue, those that fit at once", needs: func(b Backend) bool { return shares(b) && b.Queues }, run: shared(sharesInOrder)},
		{name: "random workers never share a key with too many", needs: shares, run: randomSharers},
	}
}

// shared returns a claim of the key for one of several holders.
func (s *subject) shared(key string, maxHolders int) driver.Claim {
	c := s.claim(key)
	c.MaxHolders = maxHolders
	c.TTL = s.longShared()
	return c
}

// longShared returns a TTL of a shared claim that does not pass while a check runs.
func (s *subject) longShared() time.Duration {
	if s.backend.MaxSharedTTL > 0 {
		return s.backend.MaxSharedTTL
	}
	return long
}

// waiting returns c as a claim that waits.
func waiting(c driver.Claim) driver.Claim {
	c.Queue = driver.Retried
	return c
}

// fill makes as many claims hold the key as may, or three if any number may.
func (s *subject) fill(key string, maxHolders int) (holders []driver.Claim) {
	s.Helper()
	n := maxHolders
	if maxHolders == driver.Unlimited {
		n = 3
	}
	for i := range n {
		c := s.shared(key, maxHolders)
		s.processOf(i).mustAcquire(c)
		holders = append(holders, c)
	}
	return holders
}

func key(name string, maxHolders int) string { return name + " " + strconv.Itoa(maxHolders) }

func saysWhatItShares(s *subject, maxHolders int) {
	shares := driver.Describe(s.here.locker).Shares
	require.NotNil(s, shares, "the Locker must have Description.Shares")
	require.NoError(s, shares(maxHolders))
}

func countsHolders(s *subject, maxHolders int) {
	k := key("counted", maxHolders)
	holders := s.fill(k, maxHolders)
	more := s.shared(k, maxHolders)
	if maxHolders == driver.Unlimited {
		s.here.mustAcquire(more)
		return
	}
	g := s.there.requireBusy(more, long)
	require.NotEmpty(s, g.Label)
	s.here.mustRelease(holders[1], driver.After{})
	s.there.mustAcquire(s.shared(k, maxHolders))
	s.there.requireBusy(s.shared(k, maxHolders), long)
	for i, c := range holders {
		require.Equal(s, i != 1, s.here.renew(c))
		require.Equal(s, i != 1, s.here.release(c, driver.After{}))
	}
}

func sharedAtOnce(s *subject, maxHolders int) {
	k, n := key("at once", maxHolders), 5
	if maxHolders != driver.Unlimited {
		n = min(n, maxHolders)
	}
	for range 10 {
		claims, states := make([]driver.Claim, n), make([]driver.State, n)
		var all sync.WaitGroup
		for i := range n {
			claims[i] = s.shared(k, maxHolders)
			all.Go(func() { states[i] = s.processOf(i).acquire(claims[i]).State })
		}
		all.Wait()
		for i, c := range claims {
			require.Equal(s, driver.Granted, states[i], "the answer to one of %d claims of at most %d", n, maxHolders)
			s.processOf(i).mustRelease(c, driver.After{})
		}
	}
}

func smallestCounts(s *subject, maxHolders int) {
	if maxHolders == driver.Unlimited {
		return
	}
	if driver.Describe(s.here.locker).Shares(driver.Unlimited) != nil {
		return
	}
	k := key("smallest", maxHolders)
	limited := s.shared(k, maxHolders)
	s.here.mustAcquire(limited)
	for range maxHolders - 1 {
		s.there.mustAcquire(s.shared(k, driver.Unlimited))
	}
	s.there.requireBusy(s.shared(k, driver.Unlimited), long)
	s.here.mustRelease(limited, driver.After{})
	s.there.mustAcquire(s.shared(k, driver.Unlimited))
	s.here.requireBusy(s.shared(k, maxHolders), long)
}

func aloneExcludes(s *subject, maxHolders int) {
	k := key("alone", maxHolders)
	readers := s.fill(k, maxHolders)
	for i, c := range readers {
		s.there.requireBusy(s.claim(k), long)
		s.processOf(i).mustRelease(c, driver.After{})
	}
	alone := s.claim(k)
	s.here.mustAcquire(alone)
	s.there.requireBusy(s.shared(k, maxHolders), long)
	require.True(s, s.here.renew(alone))
	s.here.mustRelease(alone, driver.After{})
	s.there.mustAcquire(s.shared(k, maxHolders))
	s.here.requireBusy(s.claim(k), long)
}

func sharedRepeatCountsOnce(s *subject, maxHolders int) {
	k := key("repeated", maxHolders)
	c := s.shared(k, maxHolders)
	first := s.here.mustAcquire(c)
	require.False(s, first.Held)
	for range 3 {
		again := s.there.mustAcquire(c)
		require.True(s, again.Held)
		require.Equal(s, []uint64{first.Fence, uint64(first.Seat)}, []uint64{again.Fence, uint64(again.Seat)})
	}
	s.here.mustRelease(c, driver.After{})
	require.False(s, s.there.renew(c))
	s.there.mustAcquire(s.claim(k))
}

func hasSeat(s *subject, maxHolders int) {
	k := key("seat", maxHolders)
	if maxHolders > driver.MaxSeats {
		require.Zero(s, s.here.mustAcquire(s.shared(k, maxHolders)).Seat)
		return
	}
	claims := make([]driver.Claim, maxHolders)
	for i := range claims {
		claims[i] = s.shared(k, maxHolders)
		require.Equal(s, i+1, s.processOf(i).mustAcquire(claims[i]).Seat)
	}
	for i := len(claims) - 1; i >= 0; i-- {
		s.here.mustRelease(claims[i], driver.After{})
		claims[i] = s.shared(k, maxHolders)
		require.Equal(s, i+1, s.there.mustAcquire(claims[i]).Seat, "the seat that is free")
	}
}

func sharedExpires(s *subject, maxHolders int) {
	k := key("expires", maxHolders)
	c := s.shared(k, maxHolders)
	c.TTL = s.short()
	stays := s.shared(k, maxHolders)
	s.here.mustAcquire(c)
	s.here.mustAcquire(stays)
	s.outlive(c.TTL)
	require.False(s, s.here.renew(c), "a claim that has expired")
	require.False(s, s.here.release(c, driver.After{}))
	s.there.requireBusy(s.claim(k), long)
	s.there.mustAcquire(s.shared(k, maxHolders))
	require.True(s, s.here.renew(stays))
}

func sharedIsRenewed(s *subject, maxHolders int) {
	k := key("renewed", maxHolders)
	c := s.outlivesItsTTL(func() driver.Claim { return s.shared(k, maxHolders) }, s.longShared())
	s.there.requireBusy(s.claim(k), long)
	require.True(s, s.here.renew(c))
	s.here.mustRelease(c, driver.After{})
	s.there.mustAcquire(s.claim(k))
}

func minHoldIsHolder(s *subject, maxHolders int) {
	k := key("kept", maxHolders)
	c := s.shared(k, maxHolders)
	s.here.mustAcquire(c)
	keep := 4 * s.short()
	begin := time.Now()
	s.here.mustRelease(c, driver.After{Keep: keep})
	require.True(s, s.here.release(c, driver.After{}), "a release that is repeated")
	require.False(s, s.here.renew(c))
	if maxHolders == 2 {
		s.there.mustAcquire(s.shared(k, maxHolders))
		g := s.there.acquire(s.shared(k, maxHolders))
		if time.Since(begin) < keep {
			require.Equal(s, driver.Busy, g.State)
		}
		return
	}
	s.there.awaitGrant(s.claim(k), driver.Busy, begin.Add(keep))
}

func sharedFindsDone(s *subject, maxHolders int) {
	k := key("done", maxHolders)
	c := s.claim(k)
	s.here.mustAcquire(c)
	s.here.mustRelease(c, driver.After{Keep: long, Done: true, Record: []byte("record")})
	g := s.there.requireDone(s.shared(k, maxHolders), long)
	require.Equal(s, "record", string(g.Record))
	require.Equal(s, c.Label, g.Label)
}

func sharedFencesGrow(s *subject, maxHolders int) {
	k := key("fences", maxHolders)
	last := uint64(0)
	grow := func(g driver.Answer) {
		s.Helper()
		require.Greater(s, g.Fence, last)
		last = g.Fence
	}
	for range 3 {
		var readers []driver.Claim
		for range 2 {
			c := s.shared(k, maxHolders)
			c.Fences.Reserve = 4
			g := s.here.mustAcquire(c)
			grow(g)
			c.Fence = g.Fence + uint64(g.Reserved)
			require.True(s, s.there.renew(c)) // under the last that it may use
			last = c.Fence
			readers = append(readers, c)
		}
		for _, c := range readers {
			s.there.mustRelease(c, driver.After{})
		}
		writer := s.claim(k)
		grow(s.there.mustAcquire(writer))
		s.here.mustRelease(writer, driver.After{})
	}
}

func wantedKeepsOut(s *subject, maxHolders int) {
	k := key("wanted", maxHolders)
	reader := s.shared(k, maxHolders)
	s.here.mustAcquire(reader)
	writer := waiting(s.claim(k))
	for range 2 {
		require.Equal(s, driver.HeldForClaim, s.there.requireBusy(writer, long).Reason, "a claim that waits for shared holders")
		writer.Repeated = true
		s.here.requireBusy(s.shared(k, maxHolders), long)
		require.True(s, s.here.renew(reader), "the holder of the key is not affected")
	}
	require.NotEqual(s, driver.HeldForClaim, s.here.requireBusy(waiting(s.claim(k)), long).Reason, "one claim is wanted at a time")
	s.here.mustRelease(reader, driver.After{})
	s.here.requireBusy(s.shared(k, maxHolders), driver.WantedFor(long))
	s.there.mustAcquire(writer)
	s.here.requireBusy(s.shared(k, maxHolders), long)
	s.there.mustRelease(writer, driver.After{})
	s.here.mustAcquire(s.shared(k, maxHolders))
}

func wantedEnds(s *subject, maxHolders int) {
	k := key("unwanted", maxHolders)
	s.here.mustAcquire(s.shared(k, maxHolders))
	require.NotEqual(s, driver.HeldForClaim, s.there.requireBusy(s.claim(k), long).Reason, "a claim that does not wait")
	leaves := waiting(s.claim(k))
	s.there.requireBusy(leaves, long)
	leaves.Repeated = true
	require.False(s, s.there.release(leaves, driver.After{}), "a release of a claim that is wanted returns false")
	reader := s.shared(k, maxHolders)
	s.here.mustAcquire(reader)
	s.here.mustRelease(reader, driver.After{})

	dies := waiting(s.claim(k))
	dies.TTL = s.short()
	begin := time.Now()
	s.there.requireBusy(dies, long)
	s.here.awaitGrant(s.shared(k, maxHolders), driver.Busy, begin.Add(driver.WantedFor(dies.TTL)))
	require.Less(s, time.Since(begin), patience)
}

func sharesInOrder(s *subject, maxHolders int) {
	k := key("queue", maxHolders)
	claim := func(maxHolders int) driver.Claim {
		c := s.shared(k, maxHolders)
		c.Queue = driver.Queued
		return c
	}
	holder := claim(1)
	s.here.mustAcquire(holder)
	line := []driver.Claim{claim(maxHolders), claim(maxHolders), claim(1), claim(maxHolders)}
	for i, c := range line {
		s.processOf(i).requireQueued(c, i)
		line[i].Repeated = true
	}
	s.here.mustRelease(holder, driver.After{})
	s.processOf(1).requireOtherNotified(line[1])
	s.processOf(0).mustAcquire(line[0])
	s.processOf(1).mustAcquire(line[1])
	s.processOf(2).requireBusy(line[2], long)
	s.processOf(3).requireBusy(line[3], long)
	s.processOf(0).mustRelease(line[0], driver.After{})
	s.processOf(3).requireBusy(line[3], long)
	s.processOf(1).mustRelease(line[1], driver.After{})
	s.processOf(3).requireBusy(line[3], long)
	s.processOf(2).mustAcquire(line[2])
	s.processOf(3).requireBusy(line[3], long)
	s.processOf(2).mustRelease(line[2], driver.After{})
	s.processOf(3).mustAcquire(line[3])
}
