package guardtest

import (
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard/driver"
)

func notificationChecks() []check {
	notifies := func(b Backend) bool { return b.Notifies }
	return []check{
		{name: "a subscriber is notified of the start of its subscription and of each release", needs: notifies, run: notifiesOfReleases},
		{name: "a subscriber is not notified after it has unsubscribed", needs: notifies, run: stopsNotifying},
	}
}

// subscribe subscribes to the key, and returns a counter of the notifications.
func (p process) subscribe(key string) (notified *atomic.Int64, stop func()) {
	p.t.Helper()
	n, ok := p.locker.(driver.Subscriber)
	require.True(p.t, ok, "Backend.Notifies is set, but the Locker is no driver.Subscriber")
	require.False(p.t, driver.Describe(p.locker).Polls, "Backend.Notifies is set, but also Description.Polls")
	notified = &atomic.Int64{}
	return notified, n.Subscribe(key, "", func(time.Duration) { notified.Add(1) })
}

func notifiesOfReleases(s *subject) {
	notified, stop := s.there.subscribe("key")
	defer stop()
	s.eventually(func() bool { return notified.Load() > 0 }, "the subscription begins")
	for _, after := range []driver.After{{}, {Keep: s.short()}, {Keep: s.short(), Done: true}} {
		c := s.claim("key")
		s.eventually(func() bool { return s.here.acquire(c).State == driver.Granted }, "the key is free")
		time.Sleep(4 * early) // for earlier notifications
		before := notified.Load()
		s.here.mustRelease(c, after)
		s.eventually(func() bool { return notified.Load() > before }, "the subscriber is notified of the release")
	}
}

func stopsNotifying(s *subject) {
	notified, stop := s.there.subscribe("key")
	other, stopOther := s.there.subscribe("key")
	defer stopOther()
	s.eventually(func() bool { return notified.Load() > 0 && other.Load() > 0 }, "both subscriptions begin")
	c := s.claim("key")
	s.here.mustAcquire(c)
	stop()
	stop()
	time.Sleep(4 * early) // one more notification is allowed
	before, beforeOther := notified.Load(), other.Load()
	s.here.mustRelease(c, driver.After{})
	s.eventually(func() bool { return other.Load() > beforeOther }, "the other subscriber is notified")
	require.LessOrEqual(s, notified.Load(), before+1, "a subscriber was notified after it had unsubscribed")
	s.here.mustAcquire(c)
	s.here.mustRelease(c, driver.After{})
	time.Sleep(4 * early)
	require.LessOrEqual(s, notified.Load(), before+1, "a subscriber was notified after it had unsubscribed")
}
