package sqlstore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/seed-1795987d/onerun/backend/internal/contain"
)

// reconnectAfter is the pause before a listener that has ended is called again.
const reconnectAfter = 500 * time.Millisecond

// A Listener brings notifications of releases from the store.
type Listener interface {
	// Listen calls begun, and then notify with the Payload of each key that was released. It
	// returns when ctx has ended or the connection is lost.
	Listen(ctx context.Context, begun func(), notify func(payload string)) error
	// Mark has the store notify of releases of the keys for so long.
	Mark(ctx context.Context, keys []string, lasts time.Duration) error
}

// SetListener sets the Listener of waiters, before the Locker is used. Without one, or while it is
// not connected, the Locker looks at their keys. With one it does so as well, but seldom.
func (l *Locker) SetListener(listener Listener) { l.subscriber.listener = listener }

// LookEvery sets how often the Locker looks at the keys of waiters, before it is used. Defaults to
// ten times a second.
func (l *Locker) LookEvery(every time.Duration) { l.subscriber.every = every }

// Payload returns what stands for a key in a notification. It is a hash: all users of the database
// may listen, and a key may hold personal data.
func Payload(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:16])
}

// keepListening calls the listener until ctx has ended.
func (s *subscriber) keepListening(ctx context.Context) {
	for ctx.Err() == nil {
		_ = contain.Err(func() error {
			return s.listener.Listen(ctx, func() { s.setListening(true) }, s.notify)
		})
		s.setListening(false)
		select {
		case <-ctx.Done():
		case <-time.After(reconnectAfter):
		}
	}
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
