package browser_test

import (
	"context"
	_ "embed"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/inspect"
	"github.com/seed-1795987d/onerun/inspect/web"
	"github.com/seed-1795987d/onerun/internal/testkit/cronlog"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// hostile are texts of each kind that could do something to a page.
var hostile = map[string]string{
	"script":      `<script>alert(1);fetch("http://example.invalid/")</script>`,
	"picture":     `"><img src=http://example.invalid/ onerror=alert(1)>`,
	"attribute":   `" onmouseover="alert(1)" autofocus onfocus="alert(1)" x="`,
	"quotes":      `' onload='alert(1)`,
	"end of tag":  `</bdi></td></tr></table></main><h1>Nothing is held</h1><iframe src=x>`,
	"style":       `</title><style>@import "http://example.invalid/"</style><base href="http://example.invalid/">`,
	"refresh":     `<meta http-equiv=refresh content="0;url=http://example.invalid/">`,
	"link":        `javascript:alert(1)`,
	"other site":  `//example.invalid/x`,
	"path":        `../../confirm?what=forget&k=x#y`,
	"entity":      `&lt;b&gt; &amp;#60;script&amp;#62; &#x202e;`,
	"comment":     `<!-- <![CDATA[ ]]> -->`,
	"override":    "invoice \u202egnp.exe",
	"embedding":   "a \u202bb \u2067c \u2068d", // never ended
	"hebrew":      "שלום 12:30 עולם",
	"arabic":      "دفع 100 (held)",
	"mark":        "right\u200fto\u200eleft\u061c",
	"zero width":  "pay\u200broll\u200d\u2060\ufeff",
	"tags":        "x\U000e0041\U000e007f y",
	"new line":    "one\nheld by alice\r\n\r\n\u2028two\u2029\u0085three\v\f",
	"control":     "a\x01\x08\x08\x7f\u0080b\ttab",
	"escape":      "\x1b[2J\x1b[31mred\x1b]0;title\x07\x1b]8;;http://example.invalid\x07link\u009b1m",
	"bytes":       "latin \xe9\xff\xc0\xaf",
	"surrogate":   "\xed\xa0\xbd\xed\xb8\x80",
	"spaces":      "  a\u00a0\u3000b\u2003c  ",
	"marks":       "z" + strings.Repeat("\u0300\u0316", 60),
	"long":        strings.Repeat("x", 480),
	"long hebrew": strings.Repeat("ש", 240),
	"long words":  strings.Repeat("word ", 90) + "end",
	"wide":        strings.Repeat("\ufdfd\U0001242b", 60),
	"long escape": strings.Repeat("\u202e", 150),
}

//go:embed hostile.js
var hostileChecks string

// attack writes a text wherever a user, a process or an operator can write one.
func attack(t *testing.T, store guard.Locker, text string) {
	t.Helper()
	g, err := guard.New(store, guard.WithoutNamespace(), guard.WithLabel(text), guard.WithName(text), guard.WithTTL(time.Hour))
	if err != nil { // a text that cannot be a label, such as one that is not UTF-8, can be a key
		g = newGuard(t, store, "plain")
	}
	t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = g.Close(ended)
	})
	_, err = g.Acquire(t.Context(), text, guard.WithOwner(cut(text, 128)))
	require.NoError(t, err)
	_, err = g.Acquire(t.Context(), "many "+text, guard.WithLimit(3))
	require.NoError(t, err)
	require.NoError(t, g.Do(t.Context(), "done "+text, func(context.Context) error { return nil }, guard.WithOnce(time.Hour)))
	i, err := inspect.New(g)
	require.NoError(t, err)
	by := inspect.By{Actor: cut(text, 100), Reason: cut(text, 300)}
	_, err = i.Hold(t.Context(), "hold "+text, time.Hour, by)
	require.NoError(t, err)
	_, err = i.Forget(t.Context(), text, by)
	require.NoError(t, err)

	ledger, ok := g.Adapter().Ledger()
	require.True(t, ok)
	now := time.Now()
	require.NoError(t, cronlog.Append(t.Context(), ledger, "onerun:processes", now, inspect.Process{
		ID: text, Label: text, Began: now, Time: now, More: 1,
		Held: []guard.HeldLease{{Key: text, Name: text, Owner: text, Since: now, Fence: 1}},
	}))
	if !utf8.ValidString(text) {
		return // JSON has no such names of jobs
	}
	require.NoError(t, cronlog.Announce(t.Context(), ledger, text, text))
	for i, outcome := range []guardcron.Result{guardcron.Failed, guardcron.Ran, guardcron.Result(text)} {
		at := now.Add(-time.Duration(i+1) * time.Minute)
		require.NoError(t, cronlog.Record(t.Context(), ledger, text, guardcron.Record{
			Tick: at, Start: at, End: at, Result: outcome, Who: text, Reason: text,
		}))
	}
}

func cut(text string, n int) string {
	if len(text) > n {
		text = strings.ToValidUTF8(text[:n], "")
	}
	return text
}

// commonViews show all texts.
var commonViews = []string{"", "?state=done", "processes", "jobs", "log"}

// hostileViews returns the views of one text, and the status of each.
func hostileViews(text string) map[string]int64 {
	of := url.QueryEscape(text)
	views := map[string]int64{
		"?prefix=" + of: http.StatusOK, "?kind=" + of: http.StatusOK, "?state=" + of: http.StatusBadRequest, "job?name=" + of: http.StatusOK,
		"confirm?what=" + of: http.StatusBadRequest, "confirm?what=pause&job=" + of: http.StatusOK,
	}
	for _, key := range []string{"", "done+", "hold+", "free+"} {
		views["key?k="+key+of] = http.StatusOK
	}
	for _, what := range []string{"break", "hold"} {
		views["confirm?what="+what+"&k="+of+"&id="+of] = http.StatusOK
	}
	return views
}

// No text of a user, a process or an operator does anything in the browser: no script runs, no
// dialog opens, no request leaves, no element is added, and nothing moves what is around it.
func TestHostileTexts_areShownHarmlessly(t *testing.T) {
	// The texts take turns at the views of one text.
	harmless(t, func(text, view int) bool { return text%4 == view%4 })
}

func TestWeekly_hostileTextsAreShownHarmlesslyInEachView(t *testing.T) {
	leftout.IfShort(t)
	harmless(t, func(int, int) bool { return true })
}

// harmless looks at the views of all texts, and at those of one text which are chosen.
func harmless(t *testing.T, chosen func(text, view int) bool) {
	store := memory.New()
	i, err := inspect.New(newGuard(t, store, web1))
	require.NoError(t, err)
	for _, text := range hostile {
		attack(t, store, text)
	}
	actor := "alice"
	page := serve(t, i, web.WithActions(func(*http.Request) (string, bool) { return actor, true }))
	b := openTab(t, page)
	look := func(path string, status int64, screen device) {
		b.open(page+path, status)
		require.Empty(t, evaluate[[]string](b, hostileChecks), "%s on a %s", path, screen.name)
		require.Empty(t, b.problems(), "%s on a %s", path, screen.name)
		for _, complaint := range b.takeComplaints() {
			require.Contains(t, complaint, "status of 400", path)
		}
	}
	for _, screen := range []device{desktop, phone} {
		b.use(screen, "light")
		for _, path := range commonViews {
			look(path, http.StatusOK, screen)
		}
	}
	for number, what := range slices.Sorted(maps.Keys(hostile)) {
		text := hostile[what]
		if utf8.ValidString(text) {
			actor = text
		}
		views := hostileViews(text)
		for view, path := range slices.Sorted(maps.Keys(views)) {
			if chosen(number, view) {
				look(path, views[path], phone)
			}
		}
	}
}

// The checks of hostile texts find what they are for.
func TestHostileChecks_findHarm(t *testing.T) {
	page := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write([]byte(page))
	}))
	t.Cleanup(server.Close)
	b := openTab(t, server.URL)
	for what, text := range map[string]string{
		"dialog":                             "<script>alert(1)</script>",
		"console":                            "<script>console.log(1)</script>",
		"an element script":                  "<script>1</script>",
		"an element img":                     "<img src=x>",
		"an attribute onclick":               "<a href=x onclick=y>z</a>",
		"an attribute style":                 "<a href=x style=color:red>z</a>",
		"a link to javascript:":              `<a href="javascript:1">z</a>`,
		"a link to http://":                  `<a href="http://example.invalid/">z</a>`,
		"something invisible: ":              "<p>a\u200bb</p>",
		"something invisible: \"z":           "<p>z" + strings.Repeat("\u0300", 9) + "</p>",
		"something invisible in title":       "<p title='\u202e'>a</p>",
		"is left of what comes before":       "<p><bdi>a</bdi> \u202eabc <bdi>d</bdi></p>",
		"\"\u05e9\u05dc \" is left of":       "<p>\u05e9\u05dc <span>1</span> \u05e9\u05dc <span>held</span></p>",
		"request to http://example.invalid/": "<img src=http://example.invalid/>",
	} {
		page = "<!doctype html><title>x</title><p>harmless <bdi>\u05e9\u05dc\u05d5\u05dd 12 (x)</bdi> text</p>"
		b.open(server.URL+"/ops/onerun/", http.StatusOK)
		require.Empty(t, evaluate[[]string](b, hostileChecks))
		b.takeComplaints()
		page += text
		b.open(server.URL+"/ops/onerun/", http.StatusOK)
		var found []string
		require.Eventually(t, func() bool {
			found = append(append(found, evaluate[[]string](b, hostileChecks)...), b.takeComplaints()...)
			return strings.Contains(strings.Join(found, "\n"), what)
		}, 10*time.Second, 10*time.Millisecond, "%q was not found", what)
	}
}
