package queue

import "time"

// A Subscription is how a waiter, or a queue of waiters, is notified that its key may be free. The
// caller subscribes at the store when a Step asks for it, passes the function that ends that to
// Started, and what the store notifies to Notify. All calls are serialized with those of the
// waiters.
type Subscription struct {
	deliver func(now, in time.Duration)
	live    bool   // the store has notified: it will do so again
	over    bool   // nobody needs it any more
	stop    func() // ends it; nil until it has started
}

// Started notes that the subscription was begun at the store, and what ends it. It returns true if
// nobody needs it any more: the caller then ends it.
func (s *Subscription) Started(stop func()) (over bool) {
	s.stop = stop
	return s.over
}

// Notify notes a notification, see driver.Subscriber. Without a queue, it always means at once: in
// is 0.
func (s *Subscription) Notify(now, in time.Duration) {
	if s.over {
		return
	}
	s.live = true
	s.deliver(now, in)
}

// isLive reports whether notifications are to be expected. Until then, waiters poll.
func (s *Subscription) isLive() bool { return s != nil && s.live }

// end notes that nobody needs s any more, and returns what ends it at the store, or nil.
func (s *Subscription) end() (stop func()) {
	if s == nil || s.over {
		return nil
	}
	s.over = true
	return s.stop
}
