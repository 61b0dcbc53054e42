package guardtest

import (
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
)

// slack is by how much a claim that was called and does not come may hold up the line beyond guard.CallGrace: a second in all.
const slack = time.Second - guard.CallGrace

func queueChecks() []check {
	queues := func(s Store) bool { return s.Queues }
	return []check{
		{name: "who waits in line is granted the key in the order in which they came", needs: queues, run: servesInOrder},
		{name: "a repeated claim keeps its place in line", needs: queues, run: keepsPlaces},
		{name: "who gives up its place in line is out of the way", needs: queues, run: leavesLines},
		{name: "a place in line is lost after its TTL", needs: queues, run: losesPlaces},
		{name: "who does not stand in line is behind it, or beside it", needs: queues, run: standsBehind},
		{name: "the first in line is called, and nobody else", needs: queues, run: callsTheFirst},
		{name: "who was called and does not come holds up the line for a second at most", needs: queues, run: passesOverTheDead},
		{name: "all in line learn that the key is done", needs: queues, run: tellsTheLine},
		{name: "who has left the line is told nothing", needs: queues, run: stopsCalling},
		{
			name:  "an owner holds a key twice, whoever stands in line",
			needs: func(s Store) bool { return s.Queues && s.Owners }, run: ownerPassesTheLine,
		},
	}
}

// queued returns a claim of the key that stands in line.
func (s *subject) queued() guard.Claim {
	c := s.claim("key")
	c.Line = guard.Queued
	return c
}

// line has a claim hold the key and others stand in line for it, here and there.
func (s *subject) line(n int) (holder guard.Claim, waiting []guard.Claim) {
	s.Helper()
	holder = s.queued()
	s.here.take(holder)
	for i := range n {
		c := s.queued()
		s.where(i).stands(c, i)
		waiting = append(waiting, c)
	}
	return holder, waiting
}

// where returns the process of the i-th in line.
func (s *subject) where(i int) process {
	if i%2 == 0 {
		return s.there
	}
	return s.here
}

// stands claims what has to be held, and to have that many ahead of the claim.
func (p process) stands(c guard.Claim, ahead int) {
	p.t.Helper()
	g := p.refused(c, long)
	require.Equal(p.t, ahead, g.Ahead, "how many stand before it")
	require.False(p.t, g.Called, "nobody was called while the key is held")
}

// awaits claims what is free, and has to be another's turn.
func (p process) awaits(c guard.Claim) guard.Grant {
	p.t.Helper()
	g := p.refused(c, guard.CallGrace)
	require.True(p.t, g.Called, "another was called")
	return g
}

func servesInOrder(s *subject) {
	holder, waiting := s.line(5)
	fence := s.here.take(holder).Fence
	for i, c := range waiting {
		s.where(i+1).give(holder, guard.After{})
		for j := len(waiting) - 1; j > i; j-- {
			require.Equal(s, j-i, s.where(j).awaits(waiting[j]).Ahead, "how many stand before it")
		}
		g := s.where(i).take(c)
		require.Greater(s, g.Fence, fence)
		require.False(s, g.Held)
		again := s.where(i).take(c)
		require.Equal(s, g.Fence, again.Fence, "the same claim again")
		holder, fence = c, g.Fence
	}
	s.here.give(holder, guard.After{})
	s.here.take(s.claim("key"))
}

func keepsPlaces(s *subject) {
	holder, waiting := s.line(3)
	for range 3 {
		s.where(1).stands(waiting[1], 1)
		s.where(0).stands(waiting[0], 0)
	}
	s.here.give(holder, guard.After{})
	s.where(1).awaits(waiting[1])
	s.where(2).awaits(waiting[2])
	s.where(0).take(waiting[0])
	s.where(1).stands(waiting[1], 0)
	s.where(2).stands(waiting[2], 1)
}

func leavesLines(s *subject) {
	holder, waiting := s.line(4)
	require.False(s, s.where(1).release(waiting[1], guard.After{}), "it did not hold the key")
	s.where(2).stands(waiting[2], 1)
	s.here.give(holder, guard.After{})
	s.where(3).awaits(waiting[3])
	require.False(s, s.where(0).release(waiting[0], guard.After{}), "it did not hold the key")
	require.Equal(s, 1, s.where(3).awaits(waiting[3]).Ahead, "how many stand before it")
	s.where(2).take(waiting[2])
	s.where(1).stands(waiting[1], 1) // anew, at the end
}

func losesPlaces(s *subject) {
	holder := s.queued()
	s.here.take(holder)
	lost, next := s.queued(), s.queued()
	lost.TTL = s.short()
	s.there.stands(lost, 0)
	s.here.stands(next, 1)
	s.outlive(lost.TTL)
	s.here.give(holder, guard.After{})
	s.here.take(next)
}

func standsBehind(s *subject) {
	behind, beside := s.claim("key"), s.claim("key")
	behind.Line = guard.Behind
	s.here.take(behind)
	s.here.give(behind, guard.After{})

	holder, waiting := s.line(1)
	s.here.give(holder, guard.After{})
	s.here.awaits(behind)
	s.here.take(beside)
	s.where(0).stands(waiting[0], 0)
	time.Sleep(guard.CallGrace + 4*early) // it has come when it was called, and need not come again before it is called anew
	s.here.give(beside, guard.After{})
	s.here.awaits(behind)
	s.where(0).take(waiting[0])
	s.here.refused(behind, long)
	s.where(0).give(waiting[0], guard.After{})
	s.here.take(behind)
}

// A bell is what a claim in line was told: in what times to ask.
type bell struct {
	mu   sync.Mutex
	told []time.Duration
}

func (b *bell) ring(in time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.told = append(b.told, in)
}

// relieved returns how often the claim was told not to ask, or that it need not any more.
func (b *bell) relieved() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, in := range b.told {
		if in < 0 {
			n++
		}
	}
	return n
}

// rung returns how often the claim was told to ask at once.
func (b *bell) rung() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, in := range b.told {
		if in == 0 {
			n++
		}
	}
	return n
}

// listenFor listens for a claim that stands in line, until it was told that it is heard.
func (s *subject) listenFor(p process, c guard.Claim) (b *bell, stop func()) {
	s.Helper()
	q, ok := guard.Ability[guard.Queuer](p.locker)
	require.True(s, ok, "Store.Queues is set, and the Locker is no guard.Queuer")
	b = &bell{}
	stop = q.Queue(c.Key, c.ID, b.ring)
	s.eventually(func() bool { return b.rung() > 0 }, "it listens")
	g := p.acquire(c) // as one does then
	require.Equal(s, guard.Busy, g.State)
	return b, stop
}

func callsTheFirst(s *subject) {
	holder, waiting := s.line(3)
	bells := make([]*bell, len(waiting))
	for i, c := range waiting {
		var stop func()
		bells[i], stop = s.listenFor(s.where(i), c)
		defer stop()
	}
	for i, c := range waiting {
		time.Sleep(4 * early) // for what was said before
		var before []int
		for _, b := range bells {
			before = append(before, b.rung())
		}
		s.where(i+1).give(holder, guard.After{})
		s.eventually(func() bool { return bells[i].rung() > before[i] }, "the first in line is called")
		s.where(i).take(c)
		if i+1 < len(bells) {
			s.eventually(func() bool { return bells[i+1].relieved() > 0 }, "who was to see to it that the first comes is told that he has")
		}
		time.Sleep(4 * early)
		for j := i + 1; j < len(bells); j++ {
			require.Equal(s, before[j], bells[j].rung(), "one further behind was called")
		}
		holder = c
	}
}

func passesOverTheDead(s *subject) {
	holder, waiting := s.line(3)
	for i, c := range waiting[:2] { // one that listens, and one that does not
		if i == 0 {
			_, stop := s.listenFor(s.where(i), c)
			defer stop()
		}
	}
	watcher, stop := s.listenFor(s.where(2), waiting[2])
	defer stop()
	_ = watcher
	s.here.give(holder, guard.After{})
	start := time.Now()
	var g guard.Grant
	for g.State != guard.Granted {
		g = s.where(2).acquire(waiting[2])
		if g.State == guard.Busy {
			require.True(s, g.Called)
			s.where(2).left(g, guard.CallGrace)
			time.Sleep(g.Left + time.Millisecond)
		}
		require.Less(s, time.Since(start), 2*(guard.CallGrace+slack), "two of the dead have held up the line for longer")
	}
	require.GreaterOrEqual(s, time.Since(start)+early, guard.CallGrace, "who was called had no time to come")
	s.where(0).stands(waiting[0], 0) // it has lost its place, and gets another
}

func tellsTheLine(s *subject) {
	holder, waiting := s.line(3)
	var bells []*bell
	for i, c := range waiting {
		b, stop := s.listenFor(s.where(i), c)
		defer stop()
		bells = append(bells, b)
	}
	time.Sleep(4 * early) // for what was said before
	var before []int
	for _, b := range bells {
		before = append(before, b.rung())
	}
	s.here.give(holder, guard.After{Keep: long, Done: true, Record: []byte("record")})
	for i, b := range bells {
		s.eventually(func() bool { return b.rung() > before[i] }, "it is told that the key is done")
		require.Equal(s, "record", string(s.where(i).finished(waiting[i], long).Record))
	}
}

func stopsCalling(s *subject) {
	holder, waiting := s.line(2)
	b, stop := s.listenFor(s.where(0), waiting[0])
	next, stopNext := s.listenFor(s.where(1), waiting[1])
	defer stopNext()
	time.Sleep(4 * early) // for what was said before
	stop()
	stop()
	require.False(s, s.where(0).release(waiting[0], guard.After{}))
	time.Sleep(4 * early) // for one more that is allowed
	before, beforeNext := b.rung(), next.rung()
	s.here.give(holder, guard.After{})
	s.eventually(func() bool { return next.rung() > beforeNext }, "the next is called")
	require.LessOrEqual(s, b.rung(), before+1, "who has left was told")
}

func ownerPassesTheLine(s *subject) {
	first, second := s.owned()
	first.Line, second.Line = guard.Queued, guard.Queued
	fence := s.here.take(first).Fence
	waiting := s.queued()
	s.there.stands(waiting, 0)
	joined := s.there.take(second)
	require.True(s, joined.Held)
	require.Equal(s, fence, joined.Fence)
	s.here.give(first, guard.After{})
	s.there.stands(waiting, 0)
	s.there.give(second, guard.After{})
	s.there.take(waiting)
}
