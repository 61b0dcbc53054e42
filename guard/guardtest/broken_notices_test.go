package guardtest_test

import (
	"context"
	"sync"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

// A teller is a Locker that tells of releases, as far as its fields say.
type teller struct {
	guard.Locker
	begins, releases, stops bool

	mu        sync.Mutex
	listeners map[int]func()
	next      int
}

func (l *teller) Notify(_ string, wake func()) (stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id := l.next
	l.next++
	l.listeners[id] = wake
	if l.begins {
		wake()
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.stops {
			delete(l.listeners, id)
		}
	}
}

func (l *teller) Release(ctx context.Context, c guard.Claim, after guard.After) (bool, error) {
	held, err := l.Locker.Release(ctx, c, after)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, wake := range l.listeners {
		if l.releases && held {
			wake()
		}
	}
	return held, err
}

func telling(begins, releases, stops bool) guardtest.Store {
	s := wrapped(func(l guard.Locker) guard.Locker {
		return &teller{Locker: l, begins: begins, releases: releases, stops: stops, listeners: map[int]func(){}}
	})
	s.Notifies = true
	return s
}

func brokenNotices() []broken {
	const tells, stops = "who listens is told when it begins, and of each release", "who has stopped listening is told nothing"
	return []broken{
		{name: "nobody is told that it listens", store: telling(false, false, true), caughtBy: []string{tells, stops}},
		{name: "releases are not told", store: telling(true, false, true), caughtBy: []string{tells, stops}},
		{name: "who has stopped is told on", store: telling(true, true, false), caughtBy: []string{stops}},
	}
}
