package guardtest

import (
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
)

func noticeChecks() []check {
	notifies := func(s Store) bool { return s.Notifies }
	return []check{
		{name: "who listens is told when it begins, and of each release", needs: notifies, run: tellsOfReleases},
		{name: "who has stopped listening is told nothing", needs: notifies, run: stopsTelling},
	}
}

// listen listens for the key, and returns how often it was told something.
func (p process) listen(key string) (told *atomic.Int64, stop func()) {
	p.t.Helper()
	n, ok := guard.Ability[guard.Notifier](p.locker)
	require.True(p.t, ok, "Store.Notifies is set, and the Locker is no guard.Notifier")
	told = &atomic.Int64{}
	return told, n.Notify(key, func() { told.Add(1) })
}

func tellsOfReleases(s *subject) {
	told, stop := s.there.listen("key")
	defer stop()
	s.eventually(func() bool { return told.Load() > 0 }, "it listens")
	for _, after := range []guard.After{{}, {Keep: s.short()}, {Keep: s.short(), Done: true}} {
		c := s.claim("key")
		s.eventually(func() bool { return s.here.acquire(c).State == guard.Granted }, "the key is free")
		time.Sleep(4 * early) // for what was said before
		before := told.Load()
		s.here.give(c, after)
		s.eventually(func() bool { return told.Load() > before }, "a release is told")
	}
}

func stopsTelling(s *subject) {
	told, stop := s.there.listen("key")
	other, stopOther := s.there.listen("key")
	defer stopOther()
	s.eventually(func() bool { return told.Load() > 0 && other.Load() > 0 }, "both listen")
	c := s.claim("key")
	s.here.take(c)
	stop()
	stop()
	time.Sleep(4 * early) // for one more that is allowed
	before, beforeOther := told.Load(), other.Load()
	s.here.give(c, guard.After{})
	s.eventually(func() bool { return other.Load() > beforeOther }, "the other is told")
	require.LessOrEqual(s, told.Load(), before+1, "who has stopped was told")
	s.here.take(c)
	s.here.give(c, guard.After{})
	time.Sleep(4 * early)
	require.LessOrEqual(s, told.Load(), before+1, "who has stopped was told")
}
