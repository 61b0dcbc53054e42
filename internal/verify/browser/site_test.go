package browser_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/inspect"
	"github.com/seed-1795987d/onerun/inspect/web"
	"github.com/seed-1795987d/onerun/internal/testkit/cronlog"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// The processes of the site.
const (
	web1 = "web-1 pid 8031"
	web2 = "web-2 pid 7100"
)

// claimKey is the key of a request, as guardhttp makes it.
const claimKey = "http:--PlDBGhrUo5Qx0c7k2WzA"

// A site is a fleet in the middle of its work, and the page that shows it.
type site struct {
	*testing.T
	inspector *inspect.Inspector
	ledger    driver.Ledger
	stuck     *guard.Lease
	url       string // of the page, with a slash at the end
}

// newSite returns a site that serves the page under a prefix. alice may act.
func newSite(t *testing.T) *site {
	t.Helper()
	store := memory.New()
	g := newGuard(t, store, web1)
	i, err := inspect.New(g)
	require.NoError(t, err)
	ledger, ok := g.Adapter().Ledger()
	require.True(t, ok)
	s := &site{T: t, inspector: i, ledger: ledger}
	s.work(g, newGuard(t, store, web2))
	s.schedule()
	alice := func(*http.Request) (string, bool) { return "alice", true }
	s.url = serve(t, i, web.WithActions(alice))
	return s
}

// serve serves the page under a prefix, and returns its URL with a slash at the end.
func serve(t *testing.T, i *inspect.Inspector, opts ...web.Option) string {
	t.Helper()
	page, err := web.New(i, append(opts, web.WithHosts("127.0.0.1"))...)
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle("/ops/onerun/", http.StripPrefix("/ops/onerun/", page))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL + "/ops/onerun/"
}

func newGuard(t *testing.T, store guard.Locker, label string) *guard.Guard {
	t.Helper()
	g, err := guard.New(store, guard.WithoutNamespace(), guard.WithLabel(label))
	require.NoError(t, err)
	t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel() // leases that the test still has are revoked
		_ = g.Close(ended)
	})
	return g
}

// work has two processes hold, share, await and finish keys.
func (s *site) work(g1, g2 *guard.Guard) {
	s.Helper()
	acquire := func(g *guard.Guard, key string, opts ...guard.Option) *guard.Lease {
		l, err := g.Acquire(s.Context(), key, opts...)
		require.NoError(s, err)
		return l
	}
	s.stuck = acquire(g1, "nightly-report")
	acquire(g1, "licences", guard.WithLimit(3))
	acquire(g2, "licences", guard.WithLimit(3))
	acquire(g2, "import:tenant-17:2026-11-22T03:00:00Z:a-long-key-that-has-no-space-to-break-it-at")
	done := acquire(g2, "nightly-backup", guard.WithOnce(24*time.Hour))
	require.NoError(s, done.SetRecord(make([]byte, 412)))
	require.NoError(s, done.Complete(s.Context()))
	acquire(g1, claimKey)
	for i := range 1000 {
		name := fmt.Sprintf("shipment:%04d", i)
		require.NoError(s, g1.Do(s.Context(), name, func(context.Context) error { return nil }, guard.WithOnce(24*time.Hour)))
	}
	by := inspect.By{Actor: "alice", Reason: "the schema changes"}
	_, err := s.inspector.Hold(s.Context(), "migration", 2*time.Hour, by)
	require.NoError(s, err)

	waiting, stop := context.WithCancel(s.Context())
	waits := make(chan struct{})
	go func() {
		defer close(waits)
		fair := []guard.Option{guard.WithFair(), guard.WithWait(guard.Forever)}
		_, _ = g2.Acquire(waiting, "nightly-report", fair...)
	}()
	s.Cleanup(func() { stop(); <-waits })
	require.Eventually(s, func() bool {
		k, err := s.inspector.Show(s.Context(), "nightly-report")
		return err == nil && len(k.Queue) == 1
	}, 10*time.Second, 5*time.Millisecond, "nobody waits")

	// A process reports only what it has held for a second, so this is a report of yesterday's.
	now := time.Now()
	held := guard.HeldLease{
		Key: "nightly-report", Name: "report", Since: now.Add(-3 * time.Minute), Fence: s.stuck.Fence(),
	}
	claim := guard.HeldLease{Key: claimKey, Name: "POST /claims", Since: now}
	for _, p := range []inspect.Process{
		{ID: "1", Label: web1, Began: now.Add(-26 * time.Hour), Time: now, Held: []guard.HeldLease{held, claim}},
		{ID: "2", Label: web2, Began: now.Add(-25 * time.Hour), Time: now},
	} {
		require.NoError(s, cronlog.Append(s.Context(), s.ledger, "onerun:processes", now, p))
	}
}

// schedule writes down what cron has done: one job with all outcomes, and one without any.
func (s *site) schedule() {
	s.Helper()
	today := time.Now().UTC().Truncate(24 * time.Hour)
	for name, spec := range map[string]string{
		"nightly report": "0 3 * * *", "nightly backup": "30 2 * * *", "weekly": "@weekly",
	} {
		require.NoError(s, cronlog.Announce(s.Context(), s.ledger, name, spec))
	}
	outcomes := strings.Fields("ran ran ran failed ran ran missed ran skipped ran ran lost ran failed " +
		"ran ran ran running")
	why := map[guardcron.Result]string{
		guardcron.Failed:  "unexpected EOF",
		guardcron.Missed:  "no process was up",
		guardcron.Skipped: "the job is paused",
		guardcron.Lost:    "its process has died",
	}
	for i, word := range outcomes {
		outcome := guardcron.Result(word)
		tick := today.AddDate(0, 0, i-len(outcomes)).Add(3 * time.Hour)
		who := []string{web1, web2}[i%2]
		r := guardcron.Record{Tick: tick, Result: outcome, Who: who, Reason: why[outcome]}
		if outcome != guardcron.Missed && outcome != guardcron.Skipped {
			r.Start, r.Fence = tick, uint64(1+i)
			if outcome != guardcron.Running {
				r.End = tick.Add(time.Duration(71+i) * time.Second)
			}
		}
		require.NoError(s, cronlog.Record(s.Context(), s.ledger, "nightly report", r))
		r = guardcron.Record{Tick: tick, Result: guardcron.Ran, Who: r.Who, Start: tick, End: tick.Add(time.Second)}
		require.NoError(s, cronlog.Record(s.Context(), s.ledger, "nightly backup", r))
	}
}
