package guardtest_test

import (
	"context"
	"sync"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

// A notifier is a Locker that notifies subscribers as its fields specify.
type notifier struct {
	guard.Locker
	begins, releases, stops bool

	mu          sync.Mutex
	subscribers map[int]func()
	next        int
}

func (l *notifier) Subscribe(_, _ string, notify func(time.Duration)) (stop func()) {
	wake := func() { notify(0) }
	l.mu.Lock()
	defer l.mu.Unlock()
	id := l.next
	l.next++
	l.subscribers[id] = wake
	if l.begins {
		wake()
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.stops {
			delete(l.subscribers, id)
		}
	}
}

func (l *notifier) Release(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
	held, err := l.Locker.Release(ctx, c, after)
	if l.releases && held {
		l.wakeAll()
	}
	return held, err
}

func (l *notifier) wakeAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, wake := range l.subscribers {
		wake()
	}
}

func newNotifier(l guard.Locker, begins, releases, stops bool) *notifier {
	return &notifier{Locker: l, begins: begins, releases: releases, stops: stops, subscribers: map[int]func(){}}
}

func notifying(begins, releases, stops bool) guardtest.Backend {
	s := wrapped(func(l guard.Locker) guard.Locker { return newNotifier(l, begins, releases, stops) })
	s.Notifies = true
	return s
}

func brokenNotifications() []broken {
	const notifies, stops = "a subscriber is notified of the start of its subscription and of each release", "a subscriber is not notified after it has unsubscribed"
	return []broken{
		{"the start of a subscription is not notified", notifying(false, false, true), []string{notifies, stops}},
		{"releases are not notified", notifying(true, false, true), []string{notifies, stops}},
		{"notifications continue after the end of a subscription", notifying(true, true, false), []string{stops}},
	}
}
