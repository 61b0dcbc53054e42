package postgres

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// notifyWithin bounds a statement that notifies: it can wait for the lock of NOTIFY.
	notifyWithin = time.Second
	// notifyAgain is for how long nothing is sent after a failure. Waiters look at their keys
	// meanwhile, and each attempt takes a connection.
	notifyAgain = 10 * time.Second
	// maxNotices is how many notifications wait for the statement under way. Others are dropped.
	maxNotices = 1000
)

// A sender notifies waiters of other processes, by one statement at a time, in a goroutine that
// ends when there is nothing to send. Nothing waits for it: it only makes hand-offs faster.
type sender struct {
	dialect *dialect

	mu      sync.Mutex
	notices map[string]struct{} // payloads that wait
	running bool
	resume  time.Time // after a failure, nothing is sent before
}

// send sends a notification soon.
func (s *sender) send(payload string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.notices) >= maxNotices || time.Now().Before(s.resume) {
		return
	}
	if s.notices == nil {
		s.notices = map[string]struct{}{}
	}
	s.notices[payload] = struct{}{}
	if !s.running {
		s.running = true
		go s.run()
	}
}

// run sends the notifications that wait, until there are none.
func (s *sender) run() {
	for {
		s.mu.Lock()
		payloads := slices.Collect(maps.Keys(s.notices))
		clear(s.notices)
		s.running = len(payloads) > 0
		s.mu.Unlock()
		if len(payloads) == 0 {
			return
		}
		if err := s.notify(payloads); err != nil {
			s.mu.Lock()
			clear(s.notices)
			s.resume = time.Now().Add(notifyAgain)
			s.mu.Unlock()
		}
	}
}

func (s *sender) notify(payloads []string) error {
	return s.dialect.locker.InBackground(context.Background(), notifyWithin, func(ctx context.Context) error {
		p := s.dialect.place.Load()
		_, err := s.dialect.db.ExecContext(ctx, p.statements["notify"], p.channel(), toJSON(payloads))
		return err
	})
}
