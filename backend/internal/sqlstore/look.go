package sqlstore

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
	err := s.locker.InBackground(ctx, lookWithin, func(ctx context.Context) error {
		return s.listener.Mark(ctx, namesOf(due), markFor)
	})
	if err != nil {
		time.AfterFunc(s.every, s.signal) // serve then tries it again
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
	names := namesOf(keys)
	var seen []Seen
	err := s.locker.InBackground(ctx, lookWithin, func(ctx context.Context) (err error) {
		seen, err = s.locker.dialect.Look(ctx, names)
		return err
	})
	if err != nil {
		return // the next look finds what has changed
	}
	var calls []*subscription
	s.mu.Lock()
	for i, k := range keys {
		changed := seen != nil && k.version != seen[i].Version // also if this is the first look
		if changed {
			k.version = seen[i].Version
		}
		calls = append(calls, k.pending(changed && seen[i].Open)...)
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

func namesOf(subscribed []*subscribedKey) (names []string) {
	for _, k := range subscribed {
		names = append(names, k.key)
	}
	return names
}
