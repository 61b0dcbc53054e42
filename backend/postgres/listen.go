package postgres

import (
	"context"
	"time"

	"github.com/seed-1795987d/onerun/backend/internal/contain"
	"github.com/seed-1795987d/onerun/backend/internal/sqlstore"
)

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
			l.Refuse("WithListener", "", "must not be nil")
			return
		}
		l.SetListener(&listener{l.dialect, listen})
	}
}

// channelWithin bounds the statement that finds the table.
const channelWithin = 2 * time.Second

// A listener is a sqlstore.Listener.
type listener struct {
	*dialect
	listen ListenFunc
}

// Listen implements sqlstore.Listener.
func (n *listener) Listen(ctx context.Context, begun func(), notify func(payload string)) error {
	return n.listen(ctx, n.channel(ctx), begun, notify)
}

// channel returns the channel on which releases are notified. If the table cannot be found now, it
// returns that of the schema public; keys are looked at in any case.
func (n *listener) channel(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, channelWithin)
	defer cancel()
	p, err := contain.Do(func() (*place, error) { return n.resolve(ctx) })
	if err != nil {
		p = &place{schema: "public", table: n.table}
	}
	return p.channel()
}

// Mark implements sqlstore.Listener.
func (n *listener) Mark(ctx context.Context, keys []string, lasts time.Duration) error {
	_, err := n.db.ExecContext(ctx, n.sql("mark"), keysToJSON(keys), sqlstore.Micros(lasts))
	return err
}
