package guardtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard/driver"
)

func inspectionChecks() []check {
	inspects := func(b Backend) bool { return b.Inspects }
	shares := func(b Backend) bool { return b.Inspects && len(b.Shares) > 0 }
	return []check{
		{name: "a key that is free is shown as free", needs: inspects, run: showsFree},
		{name: "the holder of a key is shown", needs: inspects, run: showsHolder},
		{name: "a minimum hold and a done marker are shown", needs: inspects, run: showsWhatIsLeft},
		{name: "the holders of a shared key, and the claim that is wanted, are shown", needs: shares, run: showsSharers},
		{name: "the queue of a key is shown", needs: func(b Backend) bool { return b.Inspects && b.Queues }, run: showsQueue},
		{name: "keys are listed by prefix, page by page", needs: inspects, run: listsKeys},
		{name: "a broken claim loses its key, which is kept until its time is over", needs: inspects, run: breaks},
		{name: "only the claim of that ID is broken", needs: inspects, run: breaksNoOther},
		{name: "a broken claim of a shared key counts as a holder until its time is over", needs: shares, run: breaksSharer},
		{name: "a key that is freed now is free", needs: inspects, run: breaksNow},
		{name: "a claim of a shared key that is freed now makes way for another", needs: shares, run: breaksSharerNow},
		{name: "a done marker that is forgotten is gone, and nothing else", needs: inspects, run: forgets},
		{name: "waiters are notified when a key is freed now", needs: func(b Backend) bool { return b.Inspects && b.Notifies }, run: breakNotifies},
		{name: "the queue is notified when a key is freed now", needs: func(b Backend) bool { return b.Inspects && b.Queues }, run: breakNotifiesQueue},
		{name: "an inspection whose context has ended changes nothing", needs: inspects, run: endedBeforeInspect},
		{name: "an inspection of a frozen store returns when its context ends", needs: func(b Backend) bool { return b.Inspects && freezes(b) }, run: frozenInspect, alone: true},
	}
}

func (p process) inspector() driver.Inspector {
	p.t.Helper()
	i, ok := p.locker.(driver.Inspector)
	require.True(p.t, ok, "Backend.Inspects is set, but the Locker is no driver.Inspector")
	return i
}

func (p process) show(key string) driver.KeyInfo {
	p.t.Helper()
	ctx, cancel := p.context()
	defer cancel()
	info, err := p.inspector().Show(ctx, key)
	require.NoError(p.t, err)
	return info
}

func (p process) forget(key string) bool {
	p.t.Helper()
	ctx, cancel := p.context()
	defer cancel()
	forgotten, err := p.inspector().Forget(ctx, key)
	require.NoError(p.t, err)
	p.settled(p.t)
	return forgotten
}

// list returns all keys with the prefix, each once, from pages of n.
func (p process) list(prefix string, n int) (keys []string) {
	p.t.Helper()
	ctx, cancel := p.context()
	defer cancel()
	for cursor := ""; ; {
		page, next, err := p.inspector().Keys(ctx, prefix, cursor, n)
		require.NoError(p.t, err)
		keys = append(keys, page...)
		if next == "" {
			slices.Sort(keys)
			return slices.Compact(keys)
		}
		require.NotEqual(p.t, cursor, next, "the cursor must change")
		cursor = next
	}
}

// showState waits until the key is shown in that state: the slower nodes of a quorum may answer
// first. It returns what is shown.
func (s *subject) showState(key string, state driver.KeyState) (info driver.KeyInfo) {
	s.Helper()
	s.eventually(func() bool {
		info = s.there.show(key)
		return info.State() == state
	}, fmt.Sprintf("%q is shown as %s", key, state))
	return info
}

// requireHolder checks a holder that was granted a moment ago.
func (s *subject) requireHolder(want driver.Claim, fence uint64, h driver.Holder) {
	s.Helper()
	require.Equal(s, want.ID, h.ID)
	require.Equal(s, want.Label, h.Label)
	require.Equal(s, fence, h.Fence)
	require.Equal(s, max(want.MaxHolders, 1), h.MaxHolders)
	require.False(s, h.Kept)
	require.False(s, h.Foreign)
	require.Positive(s, h.Left)
	require.LessOrEqual(s, h.Left, want.TTL+time.Millisecond)
	if s.backend.Owners {
		require.Equal(s, want.Owner, h.Owner)
	}
}

func showsFree(s *subject) {
	for _, key := range append([]string{"key", "größer"}, s.backend.Keys...) {
		info := s.here.show(key)
		require.Equal(s, driver.KeyFree, info.State())
		require.Empty(s, info.Holders)
		require.Empty(s, info.Queue)
		require.Empty(s, info.Foreign)
	}
	c := s.claim("key")
	s.here.mustAcquire(c)
	s.here.mustRelease(c, driver.After{})
	s.showState("key", driver.KeyFree)
}

func showsHolder(s *subject) {
	c := s.claim("key")
	c.Label = "line one\nline two, größer"
	before := time.Now()
	g := s.here.mustAcquire(c)
	info := s.showState("key", driver.KeyHeld)
	require.Len(s, info.Holders, 1)
	s.requireHolder(c, g.Fence, info.Holders[0])
	require.WithinDuration(s, before, info.Time, 10*time.Second)
	require.WithinDuration(s, info.Time, info.Holders[0].Since(), 10*time.Second)
	c.Fence = g.Fence + ahead
	require.True(s, s.here.renew(c))
	s.eventually(func() bool { return s.there.show("key").Holders[0].Fence == c.Fence }, "the fence in use is shown")
	require.Equal(s, driver.Busy, s.there.acquire(s.claim("key")).State, "a look changes nothing")
}

func showsWhatIsLeft(s *subject) {
	kept, done := s.claim("kept"), s.claim("done")
	fence := s.here.mustAcquire(kept).Fence
	s.here.mustRelease(kept, driver.After{Keep: long})
	info := s.showState("kept", driver.KeyKept)
	require.Len(s, info.Holders, 1)
	h := info.Holders[0]
	require.True(s, h.Kept)
	h.Kept = false
	kept.TTL = long
	s.requireHolder(kept, fence, h)

	record := allBytes(0)
	s.here.mustAcquire(done)
	done.Label = "done\nby this"
	s.here.mustRelease(done, driver.After{Keep: 2 * long, Done: true, Record: record})
	info = s.showState("done", driver.KeyDone)
	require.Equal(s, done.Label, info.Marker.Label)
	require.Equal(s, len(record), info.Marker.Size)
	require.Greater(s, info.Marker.Left, long)
	require.LessOrEqual(s, info.Marker.Left, 2*long+time.Millisecond)
	require.Equal(s, driver.Done, s.there.acquire(s.claim("done")).State)
}

func showsSharers(s *subject) {
	for _, maxHolders := range s.backend.Shares {
		k := key("shared", maxHolders)
		first, second := s.shared(k, maxHolders), s.shared(k, maxHolders)
		grants := map[string]driver.Answer{}
		for _, c := range []driver.Claim{first, second} {
			grants[c.ID] = s.here.mustAcquire(c)
		}
		alone := waiting(s.claim(k))
		require.Equal(s, driver.Busy, s.here.acquire(alone).State)
		s.eventually(func() bool { return len(s.there.show(k).Holders) == 2 }, "both holders are shown")
		info := s.there.show(k)
		require.Equal(s, driver.KeyHeld, info.State())
		require.Equal(s, info.Wanted, alone.ID)
		for _, h := range info.Holders {
			c := first
			if h.ID == second.ID {
				c = second
			}
			s.requireHolder(c, grants[c.ID].Fence, h)
			require.Equal(s, grants[c.ID].Seat, h.Seat)
		}
	}
}

func showsQueue(s *subject) {
	s.here.mustAcquire(s.claim("key"))
	var ids []string
	for i := range 3 {
		c := s.claim("key")
		c.Queue = driver.Queued
		require.Equal(s, driver.Busy, s.processOf(i).acquire(c).State)
		ids = append(ids, c.ID)
	}
	require.Equal(s, ids, s.there.show("key").Queue)
}

func listsKeys(s *subject) {
	const n = 60
	var want []string
	for i := range n {
		k := fmt.Sprintf("a*[b]?%d", i)
		c := s.claim(k)
		s.processOf(i).mustAcquire(c)
		switch i % 3 {
		case 1:
			s.processOf(i).mustRelease(c, driver.After{Keep: long})
		case 2:
			s.processOf(i).mustRelease(c, driver.After{Keep: long, Done: true})
		}
		want = append(want, k)
	}
	for _, other := range []string{"a", "ab", "axb", "a*b", "A*[b]?", "x a*[b]?"} {
		s.here.mustAcquire(s.claim(other))
	}
	slices.Sort(want)
	ctx, cancel := s.there.context()
	defer cancel()
	marked, err := s.there.inspector().Marked(ctx, append(want, "unknown"))
	require.NoError(s, err)
	for i, is := range marked {
		require.False(s, is && (i == n || s.there.show(want[i]).Marker == nil), "key %d has no done marker", i)
	}
	s.eventually(func() bool {
		marked, err := s.there.inspector().Marked(ctx, want)
		return err == nil && strings.Count(fmt.Sprint(marked), "true") == n/3
	}, "the done markers are found")
	for _, size := range []int{1, 7, 1000} {
		require.Equal(s, want, s.there.list("a*[b]?", size), "pages of %d", size)
	}
	require.Len(s, s.there.list("", 10), n+6)
	require.Empty(s, s.there.list("b", 10))
}

func endedBeforeInspect(s *subject) {
	c, done := s.claim("key"), s.claim("done")
	s.here.mustAcquire(c)
	s.here.mustAcquire(done)
	s.here.mustRelease(done, driver.After{Keep: long, Done: true})
	for _, call := range inspectorCalls(s, c.ID) {
		s.withEndedContexts(driver.OpInspect, call)
	}
	require.True(s, s.here.renew(c))
	s.showState("done", driver.KeyDone)
}

func frozenInspect(s *subject) {
	c := s.claim("key")
	s.here.mustAcquire(c)
	s.freeze()
	for _, call := range inspectorCalls(s, c.ID) {
		s.promptly(driver.OpInspect, call)
	}
}

// inspectorCalls returns one call of each method, for the key "key".
func inspectorCalls(s *subject, id string) []func(context.Context) error {
	i := s.here.inspector()
	return []func(context.Context) error{
		func(ctx context.Context) error {
			_, err := i.Show(ctx, "key")
			return err
		},
		func(ctx context.Context) error {
			_, _, err := i.Keys(ctx, "key", "", 10)
			return err
		},
		func(ctx context.Context) error {
			_, err := i.Break(ctx, "key", id, byOperator())
			return err
		},
		func(ctx context.Context) error {
			_, err := i.Forget(ctx, "key")
			return err
		},
	}
}
