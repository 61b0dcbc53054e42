package bench

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// quorumTurns is the least for processes that want one key of a RedLock again and again: they take
// it in turn, so that nobody asks in vain. Each has connections of its own to all servers, and
// one to each that receives the messages of all releases. It asks when a majority has published
// the release of the one before it.
func quorumTurns(b *testing.B, servers []*redistest.Server, processes int, span time.Duration) {
	const key = "floor:turns"
	var all []*turn
	for range processes {
		all = append(all, newTurn(b, connect(b, servers), key))
	}
	var gaps gaps
	gaps.measureTrip(b, func() (release func() error, err error) {
		lease, err := all[0].floor.take(b.Context(), "floor:alone")
		return func() error { return all[0].floor.give(b.Context(), "floor:alone", lease) }, err
	})
	count := counted(b, []string{"eval", "evalsha"}, servers)
	acquired := make(chan error)
	runs := 0
	for start := time.Now(); time.Since(start) < span; {
		holder, next := all[runs%processes], all[(runs+1)%processes]
		if runs == 0 {
			require.NoError(b, holder.take(key))
		}
		runs++
		woken := next.expect(runs)
		go func() {
			<-woken
			acquired <- next.take(key)
		}()
		time.Sleep(heldFor)
		gaps.begin()
		holder.give(key)
		require.NoError(b, <-acquired)
		gaps.end()
	}
	gaps.report(b, span, runs, count())
}

// A turn is a process that takes turns.
type turn struct {
	floor   quorumFloor
	answers chan error // to the last take, and to its give

	mu     sync.Mutex
	heard  []int // releases, by server
	awaits int   // the release after which it asks
	woken  chan struct{}
}

func newTurn(b *testing.B, clients []*redis.Client, key string) *turn {
	t := &turn{floor: openQuorumFloor(b, clients), heard: make([]int, len(clients))}
	for server, rdb := range clients {
		sub := rdb.Subscribe(b.Context(), key)
		b.Cleanup(func() { _ = sub.Close() })
		_, err := sub.Receive(b.Context())
		require.NoError(b, err)
		go func() {
			for {
				if _, err := sub.ReceiveMessage(context.Background()); err != nil {
					return // it was closed
				}
				t.hear(server)
			}
		}()
	}
	return t
}

// expect returns a channel that is closed when a majority has published the n-th release.
func (t *turn) expect(n int) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.awaits, t.woken = n, make(chan struct{})
	return t.woken
}

func (t *turn) hear(server int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.heard[server]++
	if t.woken == nil {
		return
	}
	published := 0
	for _, n := range t.heard {
		if n >= t.awaits {
			published++
		}
	}
	if published > len(t.heard)/2 {
		close(t.woken)
		t.woken = nil
	}
}

// take returns when a majority has granted the key. The others may not have been released yet.
func (t *turn) take(key string) error {
	nodes := t.floor.nodes
	t.answers = make(chan error, 2*len(nodes))
	for _, f := range nodes {
		f.calls <- floorCall{key, f.scripts.take, t.answers}
	}
	for granted, refused := 0, 0; granted <= len(nodes)/2; {
		switch err := <-t.answers; {
		case err == nil:
			granted++
		case refused == len(nodes)/2:
			return err
		default:
			refused++
		}
	}
	return nil
}

// give does not wait: nobody needs the answers.
func (t *turn) give(key string) {
	for _, f := range t.floor.nodes {
		f.calls <- floorCall{key, f.scripts.give, t.answers}
	}
}
