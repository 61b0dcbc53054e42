package web_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/inspect"
	"github.com/seed-1795987d/onerun/inspect/web"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// A site is a page under a prefix, and the Guard whose store it shows.
type site struct {
	*testing.T
	guard  *guard.Guard
	client *http.Client
	url    string // with the prefix, and without a slash at the end
	page   http.Handler
}

func newSite(t *testing.T, opts ...web.Option) *site {
	t.Helper()
	return newSiteOn(t, memory.New(), opts...)
}

func newSiteOn(t *testing.T, store guard.Locker, opts ...web.Option) *site {
	t.Helper()
	g, err := guard.New(store, guard.WithNamespace("test"), guard.WithLabel("worker 1"), guard.WithTTL(3*time.Second))
	require.NoError(t, err)
	i, err := inspect.New(g)
	require.NoError(t, err)
	page, err := web.New(i, append(opts, web.WithHosts("127.0.0.1"))...)
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle("/ops/onerun/", http.StripPrefix("/ops/onerun", page))
	mux.Handle("/slashless/", http.StripPrefix("/slashless/", page))
	mux.Handle("/exact", http.StripPrefix("/exact", page))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return &site{t, g, server.Client(), server.URL + "/ops/onerun", page}
}

// The page says which namespace it shows.
func TestPage_namesItsNamespace(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, view := range []string{"/", "/jobs", "/processes", "/log", "/key?k=report"} {
		require.Contains(t, s.see(view), "Namespace <code><bdi>test</bdi></code>", view)
	}
}

func alice(*http.Request) (string, bool) { return "alice", true }

// get returns a page, and its status.
func (s *site) get(path string) (string, int) {
	s.Helper()
	answer, err := s.client.Get(s.url + path)
	require.NoError(s, err)
	return s.read(answer)
}

func (s *site) read(answer *http.Response) (string, int) {
	s.Helper()
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	require.NoError(s, err)
	return string(body), answer.StatusCode
}

// see returns a page that must be there.
func (s *site) see(path string) string {
	s.Helper()
	body, status := s.get(path)
	require.Equal(s, http.StatusOK, status, body)
	return body
}

// post sends a form as a browser does from the same origin, and follows where it leads.
func (s *site) post(path string, form url.Values) (string, int) {
	s.Helper()
	return s.postWith(path, form, "Sec-Fetch-Site", "same-origin")
}

// postWith sends a form with a header.
func (s *site) postWith(path string, form url.Values, header, value string) (string, int) {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), http.MethodPost, s.url+path, strings.NewReader(form.Encode()))
	require.NoError(s, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set(header, value)
	answer, err := s.client.Do(r)
	require.NoError(s, err)
	return s.read(answer)
}

// hold acquires the key, and gives it back with the test.
func (s *site) hold(key string, opts ...guard.Option) *guard.Lease {
	s.Helper()
	l, err := s.guard.Acquire(s.Context(), key, opts...)
	require.NoError(s, err)
	s.Cleanup(func() { _ = l.Release(context.Background()) })
	return l
}

func (s *site) finishNightly() {
	s.Helper()
	l := s.hold("nightly", guard.WithOnce(time.Hour))
	require.NoError(s, l.SetRecord([]byte("a secret record")))
	require.NoError(s, l.Complete(s.Context()))
}

// cron runs a job for some ticks of a second.
func (s *site) cron(name string, f func(context.Context) error) {
	s.Helper()
	c := cron.New()
	jobs, err := guardcron.New(s.guard, c)
	require.NoError(s, err)
	_, err = jobs.AddFunc(name, "@every 1s", f)
	require.NoError(s, err)
	c.Start()
	s.Cleanup(func() {
		<-c.Stop().Done()
		require.NoError(s, jobs.Close(context.Background()))
	})
	require.Eventually(s, func() bool {
		records, err := jobs.Records(s.Context(), name, 10)
		require.NoError(s, err)
		return len(records) > 0 && records[0].Result != guardcron.Running
	}, 10*time.Second, 10*time.Millisecond)
}

func TestPage_showsKeys(t *testing.T) {
	s := newSite(t)
	l := s.hold("report <1>")
	s.hold("licences", guard.WithLimit(3))
	s.finishNightly()
	page := s.see("/")
	require.NotContains(t, page, "nightly", "done markers are behind a filter")
	page += s.see("/?state=done")
	for _, want := range []string{"report &lt;1&gt;", "licences", "nightly", "worker 1", "<bdi>held</bdi>", "<bdi>done</bdi>"} {
		require.Contains(t, page, want)
	}
	require.NotContains(t, page, "other")
	page = s.see("/?prefix=rep")
	require.Contains(t, page, "report &lt;1&gt;")
	require.NotContains(t, page, "nightly")

	page = s.see("/key?k=" + url.QueryEscape("report <1>"))
	require.Contains(t, page, l.ID())
	require.Contains(t, page, "worker 1")
	require.NotContains(t, page, "confirm", "it is read-only")
	page = s.see("/key?k=licences")
	require.Contains(t, page, "3 at a time")
	require.Contains(t, page, "<dt>Seat</dt><dd>1</dd>")
	page = s.see("/key?k=nightly")
	require.Contains(t, page, "15 bytes")
	require.NotContains(t, page, "secret", "records are shown by size only")
	require.Contains(t, s.see("/key?k=unknown"), "Nobody holds this key")

	for text, want := range map[string]string{"nightly": "15 bytes", "rep*": "begin with <bdi>rep</bdi>", "": "licences"} {
		page, status := s.post("/find", url.Values{"text": {text}})
		require.Equal(t, http.StatusOK, status)
		require.Contains(t, page, want)
	}
}

func TestPage_listsPageByPage(t *testing.T) {
	s := newSite(t)
	for i := range 250 {
		s.hold("key " + string(rune('a'+i%26)) + strings.Repeat("x", i/26))
	}
	keys := regexp.MustCompile(`href="key\?k=`)
	next := regexp.MustCompile(`<a href="\./(\?[^"]*)">Next page`)
	path, seen := "/", 0
	for pages := 1; ; pages++ {
		page := s.see(path)
		seen += len(keys.FindAllString(page, -1))
		link := next.FindStringSubmatch(page)
		if link == nil {
			require.Equal(t, 3, pages)
			break
		}
		path = "/" + strings.ReplaceAll(link[1], "&amp;", "&")
	}
	require.Equal(t, 250, seen)
}

func TestPage_showsProcessesJobsAndTheLog(t *testing.T) {
	s := newSite(t, web.WithActions(alice))
	i, err := inspect.New(s.guard)
	require.NoError(t, err)
	require.Contains(t, s.see("/processes"), "No process has reported")
	require.Contains(t, s.see("/jobs"), "No process has announced")
	require.Contains(t, s.see("/log"), "Nobody has changed anything")

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- i.Announce(ctx) }()
	require.Eventually(t, func() bool { return strings.Contains(s.see("/processes"), "worker 1") }, 5*time.Second, 10*time.Millisecond)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)

	s.cron("nightly report", func(context.Context) error { return io.ErrUnexpectedEOF })
	page := s.see("/jobs")
	require.Contains(t, page, "@every 1s")
	require.Contains(t, page, `<li class="failed"`)
	page = s.see("/job?name=nightly+report")
	require.Contains(t, page, "unexpected EOF")
	require.Contains(t, page, "Pause the job")
	// The form proposed "2h 0m", which it then refused.
	require.Contains(t, s.see("/confirm?what=pause&job=nightly+report"), `name="for" value="2h"`)
	pause := url.Values{"what": {"pause"}, "job": {"nightly report"}, "for": {"2h"}}
	page, status := s.post("/act", pause)
	require.Equal(t, http.StatusOK, status, page)
	pause["for"], pause["reason"] = []string{""}, []string{"maintenance"}
	page, status = s.post("/act", pause)
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, page, "paused")
	require.Contains(t, page, "Resume the job")
	page, status = s.post("/act", url.Values{"what": {"resume"}, "job": {"nightly report"}})
	require.Equal(t, http.StatusOK, status)
	require.NotContains(t, page, "Resume the job")
	page, _ = s.post("/act", url.Values{"what": {"trigger"}, "job": {"nightly report"}})
	require.Contains(t, page, "RunNow", "memory notifies nobody")
	page = s.see("/log")
	require.Contains(t, page, "maintenance")
	require.Contains(t, page, "resume")
}

func TestActions_askAndAct(t *testing.T) {
	s := newSite(t, web.WithActions(alice))
	stuck := s.hold("report")
	page := s.see("/key?k=report")
	link := regexp.MustCompile(`href="(confirm\?what=break&amp;[^"]*)"`).FindStringSubmatch(page)
	require.NotNil(t, link)
	page = s.see("/" + strings.ReplaceAll(link[1], "&amp;", "&"))
	require.Contains(t, page, "so that no two runs overlap")
	require.Contains(t, page, "as <bdi>alice</bdi>")

	form := url.Values{}
	for _, field := range regexp.MustCompile(`<input type="hidden" name="(\w+)" value="([^"]*)">`).FindAllStringSubmatch(page, -1) {
		form.Set(field[1], field[2])
	}
	form.Set("reason", "it hangs")
	page, status := s.post("/act", form)
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, page, "broken by alice: it hangs")
	require.Contains(t, page, "Broken: its run may go on until its next renewal")
	require.Contains(t, page, "<td><bdi>worker 1</bdi></td><td><bdi>it hangs</bdi></td>", "the history")
	page, status = s.post("/act", form)
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, page, "nothing to do")

	id := regexp.MustCompile(`what=break-now&amp;k=report&amp;id=([\w-]+)`).FindStringSubmatch(s.see("/key?k=report"))
	require.NotNil(t, id)
	page, status = s.post("/act", url.Values{"what": {"break-now"}, "k": {"report"}, "id": {id[1]}})
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, page, "Nobody holds this key")
	<-stuck.Context().Done()

	s.finishNightly()
	page, status = s.post("/act", url.Values{"what": {"forget"}, "k": {"nightly"}})
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, page, "Nobody holds this key")
	page, status = s.post("/act", url.Values{"what": {"hold"}, "k": {"nightly"}, "for": {"2h"}})
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, page, "held by alice")
	_, status = s.post("/act", url.Values{"what": {"hold"}, "k": {"nightly"}, "for": {"2h"}})
	require.Equal(t, http.StatusConflict, status)
	for _, bad := range []url.Values{
		{"what": {"hold"}, "k": {"other"}, "for": {"soon"}}, {"what": {"hold"}, "k": {"other"}}, {"what": {"hold"}, "k": {"other"}, "for": {"-1h"}},
		{"what": {"explode"}, "k": {"other"}}, {"what": {"break"}, "k": {"other"}}, {"what": {"forget"}, "k": {""}},
	} {
		_, status = s.post("/act", bad)
		require.Equal(t, http.StatusBadRequest, status, "%v", bad)
	}
}

func TestActions_areRefusedToOthers(t *testing.T) {
	form := url.Values{"what": {"break-now"}, "k": {"report"}}
	for name, opts := range map[string][]web.Option{
		"read-only": nil,
		"not this one": {web.WithActions(func(r *http.Request) (string, bool) {
			user, _, ok := r.BasicAuth()
			return user, ok
		})},
		"without a name": {web.WithActions(func(*http.Request) (string, bool) { return "", true })},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, opts...)
			l := s.hold("report")
			form.Set("id", l.ID())
			require.NotContains(t, s.see("/key?k=report")+s.see("/")+s.see("/jobs"), "confirm")
			_, status := s.get("/confirm?what=break&k=report&id=" + l.ID())
			require.Equal(t, http.StatusForbidden, status)
			_, status = s.post("/act", form)
			require.Equal(t, http.StatusForbidden, status)
			require.Contains(t, s.see("/key?k=report"), l.ID())
		})
	}
	t.Run("another origin", func(t *testing.T) {
		s := newSite(t, web.WithActions(alice))
		l := s.hold("report")
		form.Set("id", l.ID())
		for header, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"} {
			_, status := s.postWith("/act", form, header, value)
			require.Equal(t, http.StatusForbidden, status)
		}
		_, status := s.get("/act?" + form.Encode())
		require.Equal(t, http.StatusMethodNotAllowed, status, "a link changes nothing")
		require.Contains(t, s.see("/key?k=report"), l.ID())
	})
}

func TestKeys_areRedactedEverywhere(t *testing.T) {
	s := newSite(t, web.WithActions(alice), web.WithKeys(func(key string) string { return "key of " + key[len(key)-2:] }))
	const secret = "customer:ada@example.org:17"
	l := s.hold(secret)
	s.cron("nightly", func(ctx context.Context) error { // its error names the key
		return s.guard.Do(ctx, secret, func(context.Context) error { return nil })
	})
	jobs := s.see("/jobs") + s.see("/job?name=nightly")
	require.Contains(t, jobs, "failed")
	require.NotContains(t, jobs, "ada@")
	page := s.see("/")
	require.Contains(t, page, "key of 17")
	link := regexp.MustCompile(`href="(key\?k=[^"]+)"`).FindStringSubmatch(page)
	require.NotNil(t, link)
	all := page + s.see("/"+link[1])
	require.Contains(t, all, l.ID())
	confirm := regexp.MustCompile(`href="(confirm\?what=break&amp;[^"]*)"`).FindStringSubmatch(all)
	require.NotNil(t, confirm)
	page = s.see("/" + strings.ReplaceAll(confirm[1], "&amp;", "&"))
	form := url.Values{"what": {"break"}, "id": {l.ID()}, "k": {regexp.MustCompile(`name="k" value="([^"]*)"`).FindStringSubmatch(page)[1]}}
	all += page
	page, status := s.post("/act", form)
	require.Equal(t, http.StatusOK, status)
	all += page + s.see("/log")
	page, status = s.post("/find", url.Values{"text": {"customer:*"}})
	require.Equal(t, http.StatusOK, status)
	require.NotContains(t, all+page, "ada@")
	_, status = s.get("/key?k=" + url.QueryEscape(secret))
	require.Equal(t, http.StatusBadRequest, status, "a link names no key")
}

// The text of an error named the key, and the address of the store.
func TestKeys_areRedactedInErrors(t *testing.T) {
	server := redistest.Start(t)
	redact := web.WithKeys(func(string) string { return "a key" })
	atOnce := func(o *redis.Options) { o.DialerRetries, o.MaxRetries = 1, -1 } // it fails at once
	s := newSiteOn(t, single.New(server.Client(t, atOnce)), web.WithActions(alice), redact)
	l := s.hold("ada")
	link := regexp.MustCompile(`href="key\?k=([^"]+)"`).FindStringSubmatch(s.see("/"))
	require.NotNil(t, link)
	key, err := url.QueryUnescape(link[1])
	require.NoError(t, err)
	act := func(what string, fields url.Values) (string, int) {
		fields.Set("what", what)
		fields.Set("k", key)
		return s.post("/act", fields)
	}
	long := strings.Repeat("x", 400)
	refused := func(page string, status int) func(want int, says string) {
		return func(want int, says string) {
			t.Helper()
			require.Equal(t, want, status, page)
			require.Contains(t, page, says)
			for _, secret := range []string{"ada", server.Addr(), "127.0.0.1", "onerun:"} {
				require.NotContains(t, page, secret)
			}
		}
	}
	refused(act("hold", url.Values{"for": {"1h"}}))(http.StatusConflict, "the key is busy")
	refused(act("hold", url.Values{"for": {"soon"}}))(http.StatusBadRequest, "must be a duration")
	refused(act("break", url.Values{}))(http.StatusBadRequest, "id cannot be used")
	refused(act("break", url.Values{"id": {"another"}}))(http.StatusBadRequest, "break a key found nothing to do")
	refused(act("break", url.Values{"id": {l.ID()}, "reason": {long}}))(http.StatusBadRequest, "By.Reason cannot be used")
	refused(act("forget", url.Values{}))(http.StatusBadRequest, "found nothing to do")
	refused(act("explode", url.Values{}))(http.StatusBadRequest, "is no action")
	for _, text := range []string{"ada{", "ada" + strings.Repeat("x", 5000)} {
		refused(s.post("/find", url.Values{"text": {text}}))(http.StatusBadRequest, "the key cannot be used")
	}
	refused(s.get("/key?k=ada"))(http.StatusBadRequest, "the link is too old")
	refused(s.get("/?cursor=ada"))(http.StatusBadRequest, "the link is too old")
	server.Kill()
	for _, path := range []string{"/", "/key?k=" + link[1], "/jobs", "/job?name=x", "/processes", "/log"} {
		refused(s.get(path))(http.StatusBadGateway, "the store could not be asked (connection)")
	}
	refused(act("forget", url.Values{}))(http.StatusBadGateway, "the store could not be asked (connection)")

	s = newSite(t, web.WithKeys(func(key string) string { panic(key) }))
	s.hold("ada")
	refused(s.get("/"))(http.StatusInternalServerError, "the error is not shown")
}

// On some backends, the cursor of the next page is the last key of this one.
func TestKeys_areRedactedInLinksToTheNextPage(t *testing.T) {
	s := newSite(t, web.WithKeys(func(string) string { return "a key" }))
	for i := range 150 {
		s.hold(fmt.Sprint("ada.", i))
	}
	page := s.see("/")
	require.NotContains(t, page, "ada.") // a link is random and has no dot
	next := regexp.MustCompile(`<a href="\./(\?[^"]*)">Next page`).FindStringSubmatch(page)
	require.NotNil(t, next)
	page = s.see("/" + strings.ReplaceAll(next[1], "&amp;", "&"))
	require.Len(t, regexp.MustCompile(`href="key\?k=`).FindAllString(page, -1), 50)
	require.NotContains(t, page, "ada.") // a link is random and has no dot
}

// A proxy that changes the Host header, as nginx does by default, makes the page's own origin look
// like another. A browser says that it is the same one by Sec-Fetch-Site, but not without HTTPS.
func TestPage_behindAProxyThatChangesTheHost(t *testing.T) {
	const origin = "http://ops.example"
	hold := url.Values{"what": {"hold"}, "k": {"report"}, "for": {"2h"}}
	s := newSite(t, web.WithActions(alice))
	s.finishNightly()
	find := url.Values{"text": {"nightly"}}
	_, status := s.postWith("/find", find, "Origin", origin)
	require.Equal(t, http.StatusForbidden, status)
	_, status = s.postWith("/act", hold, "Origin", origin)
	require.Equal(t, http.StatusForbidden, status)

	s = newSite(t, web.WithActions(alice), web.WithTrustedOrigins(origin))
	_, status = s.postWith("/act", hold, "Origin", "http://evil.example")
	require.Equal(t, http.StatusForbidden, status)
	page, status := s.postWith("/act", hold, "Origin", origin)
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, page, "held by alice")
	s.finishNightly()
	page, status = s.postWith("/find", find, "Origin", origin)
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, page, "15 bytes")

	for _, bad := range []string{"ops.example", origin + "/path", ""} {
		i, err := inspect.New(s.guard)
		require.NoError(t, err)
		_, err = web.New(i, web.WithTrustedOrigins(bad))
		var setting *guard.SettingError
		require.ErrorAs(t, err, &setting)
		require.Equal(t, "WithTrustedOrigins", setting.Setting)
	}
}

// All links are relative, so that the page works under any prefix and behind any proxy.
func TestPage_worksUnderAnyPrefix(t *testing.T) {
	s := newSite(t, web.WithActions(alice))
	s.hold("report")
	for _, path := range []string{"/", "/key?k=report", "/jobs", "/log", "/processes", "/confirm?what=hold&k=x"} {
		page := s.see(path)
		for _, link := range regexp.MustCompile(`(?:href|action|src)="([^"]*)"`).FindAllStringSubmatch(page, -1) {
			require.NotRegexp(t, `^(/|[a-z]+:)`, link[1])
		}
		require.NotContains(t, page, "<script")
		require.NotContains(t, page, "style=")
	}
	root := strings.TrimSuffix(s.url, "/ops/onerun")
	for _, path := range []string{"/slashless/", "/slashless/jobs", "/slashless/style.css"} {
		answer, err := s.client.Get(root + path)
		require.NoError(t, err)
		_, status := s.read(answer)
		require.Equal(t, http.StatusOK, status, path)
	}
	s.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	answer, err := s.client.Get(root + "/exact")
	require.NoError(t, err)
	_, status := s.read(answer)
	require.Equal(t, http.StatusMovedPermanently, status)
	require.Equal(t, "exact/", answer.Header.Get("Location"), "relative, as a proxy may have removed a prefix")
}

func TestPage_hasStrictHeaders(t *testing.T) {
	s := newSite(t)
	answer, err := s.client.Get(s.url + "/")
	require.NoError(t, err)
	s.read(answer)
	require.Contains(t, answer.Header.Get("Content-Security-Policy"), "default-src 'none'")
	require.NotContains(t, answer.Header.Get("Content-Security-Policy"), "unsafe")
	require.Equal(t, "nosniff", answer.Header.Get("X-Content-Type-Options"))
	require.Equal(t, "no-store", answer.Header.Get("Cache-Control"))
	answer, err = s.client.Get(s.url + "/style.css")
	require.NoError(t, err)
	s.read(answer)
	require.Contains(t, answer.Header.Get("Content-Type"), "text/css")
	require.Contains(t, s.see("/icon.svg"), "<svg", "without it, browsers ask the origin for one")
}

func TestPage_saysWhatIsWrong(t *testing.T) {
	s := newSite(t)
	for path, want := range map[string]int{"/key": 400, "/?cursor=": 200, "/nothing": 404, "/key?k=" + strings.Repeat("k", 5000): 400} {
		_, status := s.get(path)
		require.Equal(t, want, status, path[:min(len(path), 20)])
	}
	_, err := web.New(nil)
	var bad *guard.SettingError
	require.ErrorAs(t, err, &bad)
}
