package postgres

import (
	"context"
	"time"
)

const (
	// markFor is for how long a key is marked, so that its releases are notified, and markEvery how
	// often that is repeated.
	markFor   = 45 * time.Second
	markEvery = 15 * time.Second
	// lookWithin bounds a statement of the subscriber.
	lookWithin = 2 * time.Second
)

// mark asks for notifications of the keys for which that is due, and calls the subscribers whose
// subscription begins by that.
func (s *subscriber) mark(ctx context.Context) {
	now := time.Now()
	due := s.subscribed(func(k *subscribedKey) bool {
		for sub := range k.subscriptions {
			if !sub.begun {
				return true
			}
		}
		return now.Sub(k.marked) >= markEvery
	})
	if len(due) == 0 {
		return
	}
	err := s.locker.inBackground(ctx, lookWithin, func(ctx context.Context) error {
		_, err := s.locker.db.ExecContext(ctx, s.locker.sql("mark"), keysOf(due), micros(markFor))
		return err
	})
	if err != nil {
		time.AfterFunc(pollEvery, s.signal) // serve then tries it again
		return
	}
	var calls []*subscription
	s.mu.Lock()
	for _, k := range due {
		// A look may have called all of them before the key was marked for the first time.
		calls = append(calls, k.pending(k.marked.IsZero())...)
		k.marked = now
	}
	s.mu.Unlock()
	callAll(calls)
}

// look looks at the keys, and calls the subscribers of those that may be free.
func (s *subscriber) look(ctx context.Context) {
	keys := s.subscribed(func(*subscribedKey) bool { return true })
	versions, open := make([]int64, len(keys)), make([]bool, len(keys))
	err := s.locker.inBackground(ctx, lookWithin, func(ctx context.Context) error {
		return s.locker.query(ctx, func(scan scanFunc) error {
			var i, version int64
			var isOpen bool
			err := scan(&i, &version, &isOpen)
			if err == nil {
				versions[i-1], open[i-1] = version, isOpen
			}
			return err
		}, s.locker.sql("poll"), keysOf(keys))
	})
	if err != nil {
		return // the next look finds what has changed
	}
	var calls []*subscription
	s.mu.Lock()
	for i, k := range keys {
		changed := k.version != versions[i] // also if this is the first look
		k.version = versions[i]
		calls = append(calls, k.pending(changed && open[i])...)
	}
	s.mu.Unlock()
	callAll(calls)
}

// subscribed returns the keys with subscriptions that are due.
func (s *subscriber) subscribed(due func(k *subscribedKey) bool) (keys []*subscribedKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.keys {
		if due(k) {
			keys = append(keys, k)
		}
	}
	return keys
}

// keysOf returns the keys in JSON.
func keysOf(subscribed []*subscribedKey) string {
	var keys [][]byte
	for _, k := range subscribed {
		keys = append(keys, []byte(k.key))
	}
	return toJSON(keys)
}
