package postgres

import (
	"context"
	"time"

	"github.com/seed-1795987d/onerun/backend/internal/contain"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// reconnectAfter is the pause before a listener that has ended is called again.
const reconnectAfter = 500 * time.Millisecond

// A ListenFunc waits for notifications on a connection of its own, which must not go through a
// pooler in transaction mode. It sends LISTEN for the channel, calls begun, and then calls notify
// with the payload of each notification. It returns when ctx has ended or the connection is lost.
// begun and notify do not block.
type ListenFunc func(
	ctx context.Context, channel string, begun func(), notify func(payload string),
) error

// WithListener sets how the Locker waits for notifications (NOTIFY) of releases. It calls listen
// while there are waiters, in one goroutine, and again after it has returned. The documentation
// has the function for pgx; with lib/pq, use pq.NewListener. guard.New refuses nil. Without a
// listener, or while it is not connected, the Locker looks at the keys of waiters ten times a
// second, by one statement for all of them. With a listener, it does so once a second: no release
// waits for its notification, which can fail. Defaults to none.
func WithListener(listen ListenFunc) Option {
	return func(l *Locker) {
		if listen == nil {
			l.wrong = &driver.SettingError{Setting: "WithListener", Reason: "must not be nil"}
		}
		l.subscriber.listen = listen
	}
}

// keepListening calls listen until ctx has ended.
func (s *subscriber) keepListening(ctx context.Context) {
	for ctx.Err() == nil {
		_ = contain.Err(func() error {
			return s.listen(ctx, s.channel(ctx), func() { s.setListening(true) }, s.notify)
		})
		s.setListening(false)
		select {
		case <-ctx.Done():
		case <-time.After(reconnectAfter):
		}
	}
}

// channel returns the channel on which releases are notified. If the table cannot be found now, it
// returns that of the schema public; keys are looked at in any case.
func (s *subscriber) channel(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	p, err := contain.Do(func() (*place, error) { return s.locker.resolve(ctx) })
	if err != nil {
		p = &place{schema: "public", table: s.locker.table}
	}
	return p.channel()
}

// setListening notes whether notifications arrive from now on. All keys are looked at, or marked,
// and all subscribers called: earlier notifications were missed.
func (s *subscriber) setListening(listening bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listening = listening
	for _, k := range s.keys {
		k.version, k.marked = -1, time.Time{}
		for sub := range k.subscriptions {
			sub.begun = false
		}
	}
	s.signal()
}
