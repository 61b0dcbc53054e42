package guardtest

import (
	"crypto/rand"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard/driver"
)

func (p process) breaks(key, id string, b driver.Break) bool {
	p.t.Helper()
	ctx, cancel := p.context()
	defer cancel()
	broken, err := p.inspector().Break(ctx, key, id, b)
	require.NoError(p.t, err)
	p.settled(p.t)
	return broken
}

func byOperator() driver.Break { return driver.Break{ID: rand.Text(), Label: "broken by an operator"} }

func breaks(s *subject) {
	c := s.claim("key")
	c.TTL = 4 * s.short()
	fence := s.here.mustAcquire(c).Fence
	granted := time.Now()
	by := byOperator()
	require.True(s, s.there.breaks("key", c.ID, by))
	require.True(s, s.there.breaks("key", c.ID, by), "a repeated call")
	require.False(s, s.here.renew(c), "the holder must learn of it at its next renewal")
	require.False(s, s.here.release(c, driver.After{Keep: long, Done: true}))
	// a slow machine may be too late
	if info := s.there.show("key"); info.State() == driver.KeyKept {
		require.Equal(s, by.ID, info.Holders[0].ID)
		require.Equal(s, by.Label, info.Holders[0].Label)
		require.Equal(s, fence, info.Holders[0].Fence)
	}
	next := s.here.awaitGrant(s.claim("key"), driver.Busy, granted.Add(c.TTL-4*early))
	require.Greater(s, next.Fence, fence)
}

func breaksNoOther(s *subject) {
	c, gone, kept, done := s.claim("key"), s.claim("key"), s.claim("kept"), s.claim("done")
	s.here.mustAcquire(gone)
	s.here.mustRelease(gone, driver.After{})
	s.here.mustAcquire(c)
	s.here.mustAcquire(kept)
	s.here.mustRelease(kept, driver.After{Keep: long})
	s.here.mustAcquire(done)
	s.here.mustRelease(done, driver.After{Keep: long, Done: true})
	for _, now := range []bool{false, true} {
		by := byOperator()
		by.Now = now
		require.False(s, s.there.breaks("key", gone.ID, by), "the ID of an earlier holder")
		require.False(s, s.there.breaks("key", "nobody's", by))
		require.False(s, s.there.breaks("free", c.ID, by))
		require.False(s, s.there.breaks("done", done.ID, by), "a done marker is no holder")
	}
	require.False(s, s.there.breaks("kept", kept.ID, byOperator()), "nobody holds it any more")
	require.True(s, s.here.renew(c))
	require.Equal(s, driver.Busy, s.here.acquire(s.claim("kept")).State)
	require.Equal(s, driver.Done, s.here.acquire(s.claim("done")).State)
}

func breaksSharer(s *subject) {
	for _, maxHolders := range s.backend.Shares {
		k := key("shared", maxHolders)
		holders := s.fill(k, maxHolders)
		by := byOperator()
		require.True(s, s.there.breaks(k, holders[0].ID, by))
		require.True(s, s.there.breaks(k, holders[0].ID, by), "a repeated call")
		require.False(s, s.here.renew(holders[0]))
		for _, c := range holders[1:] {
			require.True(s, s.here.renew(c))
		}
		if maxHolders != driver.Unlimited {
			require.Equal(s, driver.Busy, s.here.acquire(s.shared(k, maxHolders)).State, "its time is not over")
		}
		for _, c := range holders[1:] {
			s.here.mustRelease(c, driver.After{})
		}
		require.Equal(s, driver.Busy, s.here.acquire(s.claim(k)).State, "its time is not over")
	}
}

func breaksNow(s *subject) {
	for name, after := range map[string]driver.After{"held": {}, "kept": {Keep: long}} {
		c := s.claim(name)
		fence := s.here.mustAcquire(c).Fence
		if after.Keep > 0 {
			s.here.mustRelease(c, after)
		}
		by := byOperator()
		by.Now = true
		require.True(s, s.there.breaks(name, c.ID, by))
		next := s.claim(name)
		require.Greater(s, s.here.mustAcquire(next).Fence, fence)
		require.False(s, s.here.renew(c))
		require.False(s, s.here.release(c, driver.After{}))
		require.False(s, s.there.breaks(name, c.ID, by), "the next holder is another one")
		require.True(s, s.here.renew(next))
	}
}

func breaksSharerNow(s *subject) {
	for _, maxHolders := range s.backend.Shares {
		k := key("shared", maxHolders)
		holders := s.fill(k, maxHolders)
		by := byOperator()
		by.Now = true
		require.True(s, s.there.breaks(k, holders[0].ID, by))
		require.False(s, s.here.renew(holders[0]))
		s.here.mustAcquire(s.shared(k, maxHolders))
		require.True(s, s.here.renew(holders[1]))
	}
}

func forgets(s *subject) {
	held, kept, done := s.claim("held"), s.claim("kept"), s.claim("done")
	s.here.mustAcquire(held)
	s.here.mustAcquire(kept)
	s.here.mustRelease(kept, driver.After{Keep: long})
	fence := s.here.mustAcquire(done).Fence
	s.here.mustRelease(done, driver.After{Keep: long, Done: true, Record: []byte("record")})
	for _, key := range []string{"held", "kept", "free"} {
		require.False(s, s.there.forget(key), "%q has no done marker", key)
	}
	require.True(s, s.here.renew(held))
	require.Equal(s, driver.Busy, s.here.acquire(s.claim("kept")).State)
	require.True(s, s.there.forget("done"))
	require.False(s, s.there.forget("done"))
	require.Greater(s, s.here.mustAcquire(s.claim("done")).Fence, fence)
}

func breakNotifies(s *subject) {
	for name, free := range map[string]func(c driver.Claim) bool{
		"held": func(c driver.Claim) bool {
			by := byOperator()
			by.Now = true
			return s.there.breaks(c.Key, c.ID, by)
		},
		"done": func(c driver.Claim) bool { return s.there.forget(c.Key) },
	} {
		notified, stop := s.there.subscribe(name)
		defer stop()
		s.eventually(func() bool { return notified.Load() > 0 }, "the subscription begins")
		c := s.claim(name)
		s.here.mustAcquire(c)
		if name == "done" {
			s.here.mustRelease(c, driver.After{Keep: long, Done: true})
		}
		time.Sleep(4 * early) // for earlier notifications
		before := notified.Load()
		require.True(s, free(c))
		s.eventually(func() bool { return notified.Load() > before }, "waiters are notified")
		if l := s.here.show(name).Subscribers; l >= 0 {
			require.Positive(s, l)
		}
	}
}

func breakNotifiesQueue(s *subject) {
	c := s.claim("key")
	s.here.mustAcquire(c)
	first := s.queued()
	s.here.requireQueued(first, 0)
	b, stop := s.subscribeClaim(s.here, first)
	defer stop()
	time.Sleep(4 * early) // for earlier notifications
	before := b.wakeUps()
	by := byOperator()
	by.Now = true
	require.True(s, s.there.breaks("key", c.ID, by))
	s.eventually(func() bool { return b.wakeUps() > before }, "the first in the queue is notified")
	s.here.mustAcquire(first)
}
