package browser_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/inspect"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// A view is a page of the page, and a text that it shows.
type view struct{ name, path, text string }

// views returns all of them.
func (s *site) views() []view {
	held := "k=nightly-report&id=" + url.QueryEscape(s.stuck.ID())
	return []view{
		{"keys", "", "nightly-report"},
		{"keys by prefix", "?prefix=night", "Keys that begin with night"},
		{"no keys", "?prefix=unknown", "Nothing is held"},
		{"keys that others wait for", "?state=waiting&kind=report", "nightly-report"},
		{"done keys", "?state=done", "nightly-backup"},
		{"keys that renew themselves", "?every=3600&state=kept", "Made anew every 3600 s"},
		{"a held key", "key?k=nightly-report", "Queue"},
		{"a shared key", "key?k=licences", "3 at a time"},
		{"a done key", "key?k=nightly-backup", "412 bytes"},
		{"a kept key", "key?k=migration", "held by alice: the schema changes"},
		{"a free key", "key?k=unknown", "Nobody holds this key"},
		{"processes", "processes", web1},
		{"jobs", "jobs", "nightly backup"},
		{"a job", "job?name=nightly+report", "unexpected EOF"},
		{"a job that never ran", "job?name=weekly", "It has not run yet"},
		{"the log", "log", "the schema changes"},
		{"confirm break", "confirm?what=break&" + held, "so that no two runs overlap"},
		{"confirm break-now", "confirm?what=break-now&" + held, "dead for certain"},
		{"confirm forget", "confirm?what=forget&k=nightly-backup", "The work runs again"},
		{"confirm hold", "confirm?what=hold&k=unknown", "For how long"},
		{"confirm pause", "confirm?what=pause&job=weekly", "For how long"},
		{"confirm trigger", "confirm?what=trigger&job=weekly", "also if it is paused"},
	}
}

// The colors of a mode are those on any screen, and the layout of a screen that of any mode.
func TestViews_canBeReadByEverybody(t *testing.T) {
	readable(t, map[device][]string{desktop: {"light"}, phone: {"dark"}})
}

func TestWeekly_viewsCanBeReadByEverybodyInEachModeOnEachScreen(t *testing.T) {
	leftout.IfShort(t)
	readable(t, map[device][]string{desktop: {"light", "dark"}, phone: {"light", "dark"}})
}

func readable(t *testing.T, screens map[device][]string) {
	s := newSite(t)
	b := openTab(t, s.url)
	for screen, modes := range screens {
		for _, mode := range modes {
			b.use(screen, mode)
			for _, v := range s.views() {
				b.open(s.url+v.path, http.StatusOK)
				b.see(v.text)
				require.Empty(t, b.problems(), "%s, %s, on a %s", v.name, mode, screen.name)
				require.Empty(t, b.takeComplaints(), v.name)
			}
			b.open(s.url+"confirm?what=explode", http.StatusBadRequest)
			b.see("That did not work")
			require.Empty(t, b.problems())
			for _, complaint := range b.takeComplaints() {
				require.Contains(t, complaint, "status of 400", "the browser logs the status alone")
			}
		}
	}
}

// From the list of keys or jobs, each action takes two clicks.
func TestActions_byMouse(t *testing.T) {
	s := newSite(t)
	b := openTab(t, s.url)
	act := func(list, row, title, reason string) {
		b.open(s.url+list, http.StatusOK)
		b.clickLink(`//main//*[(self::tr or self::section) and */a="` + row + `"]//a[text()="` + title + `"]`)
		b.see("as alice")
		b.do(chromedp.SendKeys(chromedp.CSS("#reason"), reason))
		b.follow(chromedp.Click(chromedp.CSS("main button")))
	}
	act("", "nightly-report", "Break", "it hangs")
	b.see("broken by alice: it hangs")
	k, err := s.inspector.Show(t.Context(), "nightly-report")
	require.NoError(t, err)
	require.Equal(t, driver.KeyKept, k.State(), "no other run begins before the TTL has passed")

	act("", "migration", "Free", "it is over")
	b.see("Nobody holds this key")

	act("?state=done", "nightly-backup", "Forget", "its input was wrong")
	b.see("Nobody holds this key")
	k, err = s.inspector.Show(t.Context(), "nightly-backup")
	require.NoError(t, err)
	require.Equal(t, driver.KeyFree, k.State())

	act("jobs", "nightly report", "Pause", "maintenance")
	b.see("paused")
	control, err := guardcron.NewControl(s.inspector.Guard())
	require.NoError(t, err)
	jobs, err := control.List(t.Context())
	require.NoError(t, err)
	require.True(t, jobs[1].Paused)
	act("jobs", "nightly report", "Resume", "it is over")
	act("jobs", "nightly report", "Pause", "maintenance")

	b.clickLink(`//nav/a[text()="Log"]`)
	b.see("maintenance")
	done, err := s.inspector.Operations(t.Context(), 6)
	require.NoError(t, err)
	over := func(o inspect.Operation) bool { return o.Reason == "it is over" }
	done = slices.DeleteFunc(done, over)
	done = done[1:] // which paused the job anew
	for i, want := range []inspect.Operation{
		{Action: inspect.ActionPause, Job: "nightly report", For: 2 * time.Hour, Reason: "maintenance"},
		{Action: inspect.ActionForget, Key: "nightly-backup", Reason: "its input was wrong"},
		{Action: inspect.ActionBreak, Key: "nightly-report", ID: s.stuck.ID(), Holder: web1, Fence: s.stuck.Fence(), Reason: "it hangs"},
	} {
		want.Actor, want.Time = "alice", done[i].Time
		require.Equal(t, want, done[i])
	}
	require.Empty(t, b.takeComplaints())
}

// The focus is where the keyboard is.
type focus struct {
	Name    string
	Visible bool // it has an outline, and is on the screen
}

const findFocus = `(() => {
	const e = document.activeElement, style = getComputedStyle(e), box = e.getBoundingClientRect();
	return {
		Name: (e.labels?.[0] || e).textContent.trim() || e.id,
		Visible: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2 &&
			box.right > 0 && box.bottom > 0 && box.left < innerWidth && box.top < innerHeight,
	};
})()`

// tabTo presses Tab until the focus has the name. It can be seen at each stop.
func (b *tab) tabTo(name string) {
	b.Helper()
	var passed []string
	for range 40 {
		b.do(chromedp.KeyEvent(kb.Tab))
		at := evaluate[focus](b, findFocus)
		require.True(b, at.Visible, "the focus on %q cannot be seen", at.Name)
		if passed = append(passed, at.Name); at.Name == name {
			return
		}
	}
	require.Fail(b, "the keyboard does not reach it", "%q, but %q", name, passed)
}

// An operator without a mouse finds a key, and breaks its lease.
func TestActions_byKeyboard(t *testing.T) {
	s := newSite(t)
	b := openTab(t, s.url)
	for _, mode := range []string{"light", "dark"} {
		b.use(desktop, mode)
		b.open(s.url, http.StatusOK)
		for _, stop := range []string{
			"Skip to the content", "Keys", "Processes", "Jobs", "Log", "Key, or prefix*", "Find", "nightly-report",
		} {
			b.tabTo(stop)
		}
	}
	b.open(s.url, http.StatusOK)
	b.tabTo("Skip to the content")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.do(chromedp.KeyEvent(kb.Tab))
	at := evaluate[string](b, "document.activeElement.textContent")
	require.Equal(t, "4 held", at, "the navigation is skipped")

	b.open(s.url, http.StatusOK)
	b.tabTo("Key, or prefix*")
	b.do(chromedp.KeyEvent("nightly-report"))
	b.follow(chromedp.KeyEvent(kb.Enter))
	b.tabTo("Break the lease")
	b.follow(chromedp.KeyEvent(kb.Enter))
	// The browser moves the focus there some time after the page has loaded.
	b.do(chromedp.Poll[chromedp.Void](`document.activeElement.id === "reason"`))
	b.do(chromedp.KeyEvent("it hangs"))
	b.tabTo("Break the lease")
	b.follow(chromedp.KeyEvent(kb.Enter))
	b.see("broken by alice: it hangs")
	require.Empty(t, b.takeComplaints())
}

// The checks find what they are for.
func TestChecks_findProblems(t *testing.T) {
	const good = `<!doctype html><html lang="en"><head><title>Good</title>
		<meta name="viewport" content="width=device-width"></head>
		<body style="background:#fff;color:#000"><main><h1>One</h1><p>Two</p><p>Three</p><p>Four</p>
		<h2>Five</h2><label for="in">In</label><input id="in" style="padding:8px"><a href="x">Six</a>
		</main></body></html>`
	const policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'self'; " +
		"img-src data: http://example.invalid"
	page := good
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Security-Policy", policy)
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(page))
	}))
	t.Cleanup(server.Close)
	b := openTab(t, server.URL)
	b.use(phone, "light")
	b.open(server.URL, http.StatusOK)
	require.Empty(t, b.problems())
	b.takeComplaints() // of the icon that the browser looks for
	const scrolls = `<div style="overflow-x:auto"><p style="width:500px">Two</p></div><p>`
	const small = `<button style="width:10px;height:40px;overflow:hidden">B</button><p>Two`
	const leaves = `<img alt="i" src="http://example.invalid/"><p>Two`
	for what, replace := range map[string][2]string{
		"text has a contrast of 2.85":        {"color:#000", "color:#999"},
		"border has a contrast of":           {"padding:8px", "padding:8px;border:1px solid #ddd"},
		"is not measured":                    {"<p>Two", `<p style="opacity:.9">Two`},
		"no lang":                            {` lang="en"`, ""},
		"no title":                           {"Good", ""},
		"2 h1":                               {"<p>Two", "<h1>Two</h1><p>Two"},
		"the levels of headings are 1,3":     {"<h2>Five</h2>", "<h3>Five</h3>"},
		"no label":                           {"for=", "data-for="},
		"no name: a":                         {"Six", ""},
		"no alt":                             {"<p>Two", `<img src="data:,"><p>Two`},
		"an ID is there twice":               {"<p>Two", `<p id="in">Two`},
		"the page is 500 px wide":            {"<p>Two", `<p style="width:500px;margin:-8px">Two`},
		"laid out for 980":                   {"width=device-width", ""},
		"the keyboard cannot scroll it":      {"<p>Two", scrolls},
		"it is 16 by 40 px":                  {"<p>Two", small},
		"not one main":                       {"main>", "div>"},
		"no scope":                           {"<p>Two", "<table><tr><th>T</th></tr></table><p>Two"},
		"contrast of 1.0":                    {"<p>Two", `<p style="background:rgba(0,0,0,.5);color:#7f7f7f">Two`},
		"script-src":                         {"<p>Two", "<script>1</script><p>Two"},
		"img-src":                            {"<p>Two", `<img alt="i" src="x"><p>Two`},
		"request to http://example.invalid/": {"<p>Two", leaves},
	} {
		page = strings.ReplaceAll(good, replace[0], replace[1])
		b.open(server.URL, http.StatusOK)
		var found []string
		require.Eventually(t, func() bool {
			found = append(append(found, b.problems()...), b.takeComplaints()...)
			return strings.Contains(strings.Join(found, "\n"), what)
		}, 10*time.Second, 10*time.Millisecond, "%q was not found", what)
	}
}
