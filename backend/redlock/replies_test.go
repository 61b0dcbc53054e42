package redlock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// loseReplies has the next reply to a script lost at n nodes, with its connection.
func (q *quorum) loseReplies(n int) {
	for _, p := range q.proxies[:n] {
		p.DropReplyTo("evalsha", 1)
	}
}

func TestFault7_repliesLostOnRelease(t *testing.T) {
	t.Parallel()
	q := startQuorum(t, 5)
	g := newGuard(t, q.locker(t))
	require.NoError(t, g.Do(t.Context(), "warm", nothing))
	for n := 1; n <= 5; n++ {
		for name, opts := range map[string][]guard.Option{"plain": nil, "once": {guard.WithOnce(time.Minute)}} {
			key := fmt.Sprint(name, n)
			require.NoError(t, g.Do(t.Context(), key, func(context.Context) error {
				require.Eventually(t, func() bool { return len(q.present(t, key)) == 5 }, time.Minute, 5*time.Millisecond)
				q.loseReplies(n)
				return nil
			}, opts...), "a release is no failure if the replies of %d nodes that did it are lost", n)
			if opts == nil {
				q.requireFree(t, key, 15*time.Second) // before the lease ends
				continue
			}
			require.Eventually(t, func() bool {
				done, held := 0, 0
				for _, i := range q.present(t, key) {
					switch look(t, single.New(q.direct[i]), key).state {
					case driver.Done:
						done++
					case driver.Busy:
						held++
					case driver.Granted:
					}
				}
				return done >= 3 && held == 0
			}, time.Minute, 20*time.Millisecond, "a majority has the marker, and nobody the lease")
		}
	}
}
