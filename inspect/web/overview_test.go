package web_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/inspect"
	"github.com/seed-1795987d/onerun/inspect/web"
	"github.com/seed-1795987d/onerun/internal/testkit/cronlog"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// rows returns the keys of a view in their order.
func rows(page string) (keys []string) {
	for _, row := range regexp.MustCompile(`<th scope="row"><a href="key[^"]*"><bdi>([^<]*)</bdi>`).FindAllStringSubmatch(page, -1) {
		keys = append(keys, row[1])
	}
	return keys
}

// wait has another call wait for a key, in the queue of the store.
func (s *site) wait(key string) {
	s.Helper()
	ctx, stop := context.WithCancel(context.Background())
	waits := make(chan struct{})
	go func() {
		defer close(waits)
		_, _ = s.guard.Acquire(ctx, key, guard.WithFair(), guard.WithWait(guard.Forever), guard.WithOwner("another"))
	}()
	s.Cleanup(func() { stop(); <-waits })
	i, err := inspect.New(s.guard)
	require.NoError(s, err)
	require.Eventually(s, func() bool {
		k, err := i.Show(s.Context(), key)
		return err == nil && k.Waiting() > 0
	}, 10*time.Second, 5*time.Millisecond)
}

// What others wait for is on top, then what has been held longest. Done markers are behind a
// filter.
func TestOverview_showsWhatMayBeStuckFirst(t *testing.T) {
	s := newSite(t)
	require.Contains(t, s.see("/"), "Nothing is held.")
	require.Contains(t, s.see("/"), "A key appears here while")
	for _, key := range []string{"z oldest", "y second", "cron:nightly"} {
		s.hold(key)
		time.Sleep(2 * time.Millisecond) // the fence has the time
	}
	s.hold("a wanted")
	s.wait("a wanted")
	i, err := inspect.New(s.guard)
	require.NoError(t, err)
	_, err = i.Hold(t.Context(), "b kept", time.Hour, inspect.By{Actor: "alice"})
	require.NoError(t, err)
	s.finishNightly()

	page := s.see("/")
	require.Equal(t, []string{"a wanted", "z oldest", "y second", "cron:nightly", "b kept"}, rows(page))
	for _, want := range []string{
		"<strong>4</strong> held", "<strong>1</strong> waited for", "<strong>1</strong> kept", "<strong>1</strong> done",
		"Others wait for 1 of the keys", "<bdi>cron job</bdi>",
	} {
		require.Contains(t, page, want)
	}
	for query, want := range map[string][]string{
		"state=held": {"a wanted", "z oldest", "y second", "cron:nightly"}, "state=waiting": {"a wanted"}, "state=kept": {"b kept"},
		"state=done": {"nightly"}, "kind=cron": {"cron:nightly"}, "kind=cron&state=kept": nil, "kind=http": nil,
		"prefix=y&state=held": {"y second"},
	} {
		require.Equal(t, want, rows(s.see("/?"+query)), query)
	}
	for _, bad := range []string{"state=stuck", "every=1", "every=x", "every=3601", "from=-1", "from=1000"} {
		_, status := s.get("/?" + bad)
		require.Equal(t, http.StatusBadRequest, status, bad)
	}
}

// The kind of work is what processes report by guard.WithName.
func TestOverview_namesTheKindOfWork(t *testing.T) {
	s := newSite(t)
	const key = "http:--PlDBGhr"
	s.hold(key)
	require.Contains(t, s.see("/"), "HTTP request")
	ledger, _ := s.guard.Adapter().Ledger()
	report := inspect.Process{ID: "1", Label: "web-1", Time: time.Now(), Held: []guard.HeldLease{{Key: key, Name: "POST /claims"}}}
	require.NoError(t, cronlog.Append(t.Context(), ledger, "onerun:processes", time.Now(), report))
	require.Contains(t, s.see("/"), "<td><bdi>POST /claims</bdi></td>")
	require.Contains(t, s.see("/key?k="+key), "Kind of work: <bdi>POST /claims</bdi>")
	require.Equal(t, []string{key}, rows(s.see("/?kind=POST+/claims")))
}

// A view says what it shows and how old it is, and renews itself if it is asked to.
func TestViews_renewThemselves(t *testing.T) {
	s := newSite(t)
	for _, view := range []string{"/", "/jobs", "/processes", "/log", "/key?k=report"} {
		page := s.see(view)
		require.Contains(t, page, "store <code><bdi>memory</bdi></code>", view)
		require.Regexp(t, `As of <time datetime="20\d\d-`, page, view)
		separator := map[bool]string{true: "&", false: "?"}[len(view) > 11]
		answer, err := s.client.Get(s.url + view + separator + "every=5")
		require.NoError(t, err)
		page, _ = s.read(answer)
		require.Equal(t, "5", answer.Header.Get("Refresh"), view)
		require.Contains(t, page, "Made anew every 5 s", view)
	}
	answer, err := s.client.Get(s.url + "/")
	require.NoError(t, err)
	_, _ = s.read(answer)
	require.Empty(t, answer.Header.Get("Refresh"))
}

// leaseName is the Redis key of a lease of backend/single.
func leaseName(key string) string {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(key))
	return fmt.Sprintf("onerun:{%x}:lease:%s", hash.Sum32()%1024, key)
}

// Twenty thousand done markers hide nothing, and cost a bounded time.
func TestOverview_ofALargeStore(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	s := newSiteOn(t, single.New(rdb), web.WithActions(alice))
	s.finishNightly()
	s.hold("stuck")
	names, err := rdb.Keys(t.Context(), "*:lease:*nightly").Result()
	require.NoError(t, err)
	marker, err := rdb.Get(t.Context(), names[0]).Result()
	require.NoError(t, err)
	const n = 20_000
	require.Equal(t, []string{leaseName("test::nightly")}, names)
	for from := 0; from < n; from += 10_000 {
		_, err = rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			for i := range 10_000 {
				key := fmt.Sprintf("test::done %06d", from+i)
				p.Set(t.Context(), leaseName(key), marker, time.Hour)
			}
			return nil
		})
		require.NoError(t, err)
	}
	begun := time.Now()
	page := s.see("/")
	took := time.Since(begun)
	require.Equal(t, []string{"stuck"}, rows(page))
	require.NotContains(t, page, "The time was over")
	require.Regexp(t, `<strong>2000[01]</strong> done`, page)
	require.Less(t, len(page), 50_000)
	require.Less(t, took, 15*time.Second, "it is 3 s at most, and machines stall")
	t.Logf("%d keys took %s, and %d bytes", n, took, len(page))
	done := s.see("/?state=done")
	require.GreaterOrEqual(t, len(rows(done)), 100)
	require.Contains(t, done, "Next page")
}
