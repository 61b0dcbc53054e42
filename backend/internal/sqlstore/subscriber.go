package sqlstore

import (
	"context"
	"sync"
	"time"
)

const (
	// pollEvery is how often a Locker without notifications looks at the keys of its subscribers.
	pollEvery = 100 * time.Millisecond
	// lookEvery is how often one with notifications does: one can be missing.
	lookEvery = time.Second
	// linger is how long a listener stays connected without subscriptions.
	linger = 500 * time.Millisecond
)

// A subscriber calls the subscribers of keys. Its goroutines run while there are subscriptions.
type subscriber struct {
	locker   *Locker
	listener Listener      // or nil
	every    time.Duration // see pollEvery
	change   chan struct{} // has one element if there is something to do

	mu        sync.Mutex
	keys      map[string]*subscribedKey // by payload
	running   bool
	listening bool
}

// A subscribedKey is a key with its subscriptions.
type subscribedKey struct {
	key           string
	subscriptions map[*subscription]struct{}
	version       int64     // when it was last looked at, or -1
	marked        time.Time // when it was last marked
}

// A subscription has begun when its subscriber was called for the first time, or again after a
// connection was lost.
type subscription struct {
	notify func(in time.Duration)
	begun  bool
}

// Subscribe implements driver.Subscriber. All subscriptions of a Locker share a statement or a
// connection.
func (l *Locker) Subscribe(key, _ string, notify func(in time.Duration)) (stop func()) {
	if l.wrong != nil {
		return func() {}
	}
	s, payload, me := &l.subscriber, Payload(key), &subscription{notify: notify}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys == nil {
		s.keys, s.change = map[string]*subscribedKey{}, make(chan struct{}, 1)
	}
	k := s.keys[payload]
	if k == nil {
		k = &subscribedKey{key: key, subscriptions: map[*subscription]struct{}{}, version: -1}
		s.keys[payload] = k
	}
	k.subscriptions[me] = struct{}{}
	if !s.running {
		s.running = true
		go s.run()
	}
	s.signal()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(k.subscriptions, me)
		if len(k.subscriptions) == 0 && s.keys[payload] == k {
			delete(s.keys, payload)
			s.signal()
		}
	}
}

func (s *subscriber) signal() {
	select {
	case s.change <- struct{}{}:
	default:
	}
}

// run serves subscriptions until there are none. The listener of one round has ended before the
// next one begins.
func (s *subscriber) run() {
	for {
		ctx, cancel := context.WithCancel(context.Background())
		var listener sync.WaitGroup
		if s.listener != nil {
			listener.Go(func() { s.keepListening(ctx) })
		}
		s.serve(ctx)
		cancel()
		listener.Wait()
		s.mu.Lock()
		if len(s.keys) == 0 {
			s.running = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
	}
}

// serve looks at the keys, or marks them, until there were no subscriptions for a while.
func (s *subscriber) serve(ctx context.Context) {
	var idleSince, looked time.Time
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		s.mu.Lock()
		idle, listening := len(s.keys) == 0, s.listening
		s.mu.Unlock()
		pause := s.every
		switch {
		case !idle && listening:
			idleSince = time.Time{}
			s.mark(ctx)
			if time.Since(looked) >= lookEvery {
				s.look(ctx)
				looked = time.Now()
			}
			pause = time.Until(looked.Add(lookEvery))
		case !idle:
			idleSince = time.Time{}
			s.look(ctx)
		case idleSince.IsZero():
			idleSince = time.Now()
		}
		if idle && (s.listener == nil || time.Since(idleSince) >= linger) {
			return
		}
		timer.Reset(pause)
		select {
		case <-timer.C:
		case <-s.change:
		}
	}
}

// pending returns the subscriptions that are to be called: all of them, or those that have not
// begun. subscriber.mu must be held.
func (k *subscribedKey) pending(all bool) (calls []*subscription) {
	for sub := range k.subscriptions {
		if all || !sub.begun {
			sub.begun = true
			calls = append(calls, sub)
		}
	}
	return calls
}

// notify calls the subscribers of a key.
func (s *subscriber) notify(payload string) {
	var calls []*subscription
	s.mu.Lock()
	if k := s.keys[payload]; k != nil {
		calls = k.pending(true)
	}
	s.mu.Unlock()
	callAll(calls)
}

func callAll(subscriptions []*subscription) {
	for _, sub := range subscriptions {
		sub.notify(0)
	}
}
