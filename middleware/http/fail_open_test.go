package guardhttp_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
)

// Requests that can run without a lease wait no more than a moment for a store that does not
// answer, and one in a second asks it again.
func TestFailOpen_doesNotWaitForTheStore(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]guardhttp.Option{
		"":                nil,
		", waiting":       {guardhttp.WithWait(time.Minute)},
		", client cancel": {guardhttp.WithClientCancel()},
	} {
		for outage, o := range lifeOutages {
			t.Run(outage+name, func(t *testing.T) {
				t.Parallel()
				server := redistest.Start(t)
				store := single.New(server.Client(t))
				warmLifeStore(t, store)
				h, _ := counted(http.StatusCreated, nil)
				s := lifeServe(t, lifeGuard(t, store), h, append(opts, guardhttp.WithFailOpen())...)
				requireRan(t, s.post(t, "before", ""), http.StatusCreated, "run 1")
				o.begin(server)
				stalls := redistest.WatchStalls()
				defer stalls.Stop()
				started := time.Now()
				var first time.Duration
				for run := 2; run <= 21; run++ {
					requireRan(t, s.post(t, "k", ""), http.StatusCreated, fmt.Sprint("run ", run))
					if run == 2 {
						first = time.Since(started) - stalls.Since(started)
					}
					outcome := s.log.await(t, run)[run-1]
					require.Equal(t, guardhttp.ResultDegraded, outcome.Result)
					require.ErrorIs(t, outcome.Err, guard.ErrStore)
				}
				// The first request waits 250 ms, and the others for as long once in a second.
				require.Less(t, first, 2*time.Second)
				require.Less(t, time.Since(started)-stalls.Since(started), 4*time.Second)
				o.end(server)
				require.Eventually(t, func() bool {
					a := lifeSend(t.Context(), s.client, s.URL, "after", "")
					return a.replayed()
				}, lifeSoon, lifePoll, "the store is asked again")
			})
		}
	}
}
