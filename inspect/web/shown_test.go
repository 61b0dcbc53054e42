package web_test

import (
	"context"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/inspect"
	"github.com/seed-1795987d/onerun/inspect/web"
	"github.com/seed-1795987d/onerun/internal/printable"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// nasty are texts that hide something, change what is around them, or look like the text after
// them.
var nasty = []string{
	"esc \x1b[31m", `esc \x1b[31m`, "c1 \u009b31m", "c1 31m", "line\nbreak", `line\nbreak`, "return\rx", "column\tx",
	"bidi \u202egnp.exe", "bidi gnp.exe", "isolate \u2066x\u2069", "zero\u200bwidth", "zerowidth", "bom\ufeffx",
	"selector \ufe0fx", "latin \xe9", "latin \ufffd", "del \x7fx", "two  spaces", "two spaces", "ends ", "ends",
	`<script>alert(1)</script>`, `"><img src=x>`, `</bdi><b>`, "&amp;",
}

// nastyJobs are the names of jobs, which must be valid UTF-8.
var nastyJobs = slices.DeleteFunc(slices.Clone(nasty), func(text string) bool { return !utf8.ValidString(text) })

// hidden are the parts of a page that are for programs: addresses, and fields that nobody sees.
var hidden = regexp.MustCompile(` href="[^"]*"| value="[^"]*"`)

// shows requires that a page has all texts, each apart from what is around it, and nothing hidden.
func (s *site) shows(page string, texts ...string) {
	s.Helper()
	visible := hidden.ReplaceAllString(page, "")
	require.True(s, utf8.ValidString(visible))
	require.Negative(s, strings.IndexFunc(visible, func(r rune) bool {
		return r != '\n' && (!unicode.IsPrint(r) || unicode.In(r, unicode.Variation_Selector))
	}), "%q", visible)
	for _, tag := range []string{"<script", "<img", "</bdi><b>"} {
		require.NotContains(s, visible, tag)
	}
	for _, text := range texts {
		require.Contains(s, visible, bdi(text))
	}
}

// A browser sends line breaks as CRLF, and changes bytes that are not UTF-8. The form means the
// same key nevertheless.
func TestActions_meanTheKeyThatWasShown(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.WithActions(alice))
	field := regexp.MustCompile(`<input type="hidden" name="(\w+)" value="([^"]*)">`)
	for _, key := range nasty {
		form := url.Values{"for": {"1h"}}
		for _, f := range field.FindAllStringSubmatch(s.see("/confirm?what=hold&k="+url.QueryEscape(key)), -1) {
			sent := strings.ToValidUTF8(html.UnescapeString(f[2]), "\ufffd")
			form.Set(f[1], strings.NewReplacer("\r\n", "\r\n", "\n", "\r\n", "\r", "\r\n").Replace(sent))
		}
		page, status := s.post("/act", form)
		require.Equal(t, http.StatusOK, status, page)
		require.Contains(t, s.see("/key?k="+url.QueryEscape(key)), "held by alice", "%q", key)
	}
}

// The store may have any text for an outcome. It must not choose how the page looks.
func TestPage_takesNoClassFromTheStore(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ledger, _ := s.guard.Adapter().Ledger()
	for i, outcome := range []string{"hidden", "ran hidden", "skip", "ran"} {
		record := fmt.Appendf(nil, `{"tick":"2026-11-2%dT00:00:00Z","result":%q,"who":"web-1"}`, i, outcome)
		require.NoError(t, ledger.Append(t.Context(), "cron:nightly", driver.Entry{At: int64(i), Record: record}, 10))
	}
	page := s.see("/job?name=nightly")
	require.Contains(t, page, bdi("ran hidden"))
	require.Contains(t, page, `class="state ran"`)
	require.NotRegexp(t, `<li class="[^"]*(hidden|skip")|class="state [^"]*(hidden|skip")`, page)
}

var again = regexp.MustCompile(`<a href="key\?k=([^"]*)">Look again`)

func bdi(text string) string { return "<bdi>" + html.EscapeString(printable.Text(text)) + "</bdi>" }

// What a key, a label, an owner, an actor, a reason, a job or an error is called hides nothing and
// looks like no other, in every view.
func TestPage_escapesTextsOfOthers(t *testing.T) {
	t.Parallel()
	store := memory.New()
	var actor string
	s := newSiteOn(t, store, web.WithActions(func(*http.Request) (string, bool) { return actor, true }))
	schedule := cron.New()
	var all []*inspect.Inspector
	var newest *guard.Guard
	for _, text := range nasty {
		g, err := guard.New(store, guard.WithNamespace("test"), guard.WithLabel(text))
		require.NoError(t, err)
		i, err := inspect.New(g)
		require.NoError(t, err)
		l, err := g.Acquire(t.Context(), text, guard.WithOwner(text))
		require.NoError(t, err)
		require.NoError(t, g.Do(t.Context(), "done "+text, func(context.Context) error { return nil }, guard.WithOnce(time.Hour)))
		_, err = i.Hold(t.Context(), "hold "+text, time.Hour, inspect.By{Actor: text, Reason: text})
		require.NoError(t, err)
		jobs, err := guardcron.New(g, schedule)
		require.NoError(t, err)
		if utf8.ValidString(text) {
			_, err = jobs.AddFunc(text, "@every 1s", func(context.Context) error { return errors.New(text) })
			require.NoError(t, err)
		}
		all, newest = append(all, i), g
		t.Cleanup(func() {
			<-schedule.Stop().Done()
			require.NoError(t, jobs.Close(context.Background()))
			require.NoError(t, l.Release(context.Background()))
			require.NoError(t, g.Close(context.Background()))
		})
	}
	schedule.Start()
	eventually := func(path, want string) {
		require.Eventually(t, func() bool { return strings.Contains(s.see(path), want) }, 20*time.Second, 10*time.Millisecond, path)
	}
	for _, text := range nastyJobs {
		eventually("/job?name="+url.QueryEscape(text), "failed")
	}
	require.Eventually(t, func() bool { held, _ := newest.Adapter().Held(time.Second, 1); return len(held) > 0 },
		20*time.Second, 10*time.Millisecond, "younger leases are not reported")
	announcing, cancel := context.WithCancel(t.Context())
	var announced sync.WaitGroup
	for _, i := range all {
		announced.Go(func() { _ = i.Announce(announcing) })
	}
	t.Cleanup(func() { cancel(); announced.Wait() })
	for _, text := range nastyJobs {
		eventually("/processes", "<h2>"+bdi(text))
		eventually("/processes", bdi(text)+"</a></th>")
	}
	s.shows(s.see("/"))
	s.shows(s.see("/processes"), nastyJobs...)
	s.shows(s.see("/jobs"), nastyJobs...)
	page := s.see("/log")
	s.shows(page, nastyJobs...)
	for _, text := range nasty {
		s.shows(page, "hold "+text)
	}
	for _, text := range nasty {
		actor = text
		of := url.QueryEscape(text)
		s.shows(s.see("/job?name="+of), text)
		for _, prefix := range []string{"", "done+", "hold+"} {
			page := s.see("/key?k=" + prefix + of)
			key := strings.ReplaceAll(prefix, "+", " ") + text
			s.shows(page, key)
			if utf8.ValidString(text) { // an actor is, too
				s.shows(page, text)
			}
			link, err := url.QueryUnescape(html.UnescapeString(again.FindStringSubmatch(page)[1]))
			require.NoError(t, err)
			require.Equal(t, key, link, "a link has the key itself")
			s.shows(s.see("/confirm?what=break&k="+prefix+of), text)
		}
		s.shows(s.see("/confirm?what=pause&job="+of), text)
		page, status := s.get("/?prefix=" + of)
		require.Equal(t, http.StatusOK, status)
		s.shows(page, text)
		for _, bad := range []url.Values{{"what": {text}}, {"what": {"forget"}, "k": {"other " + text}}, {"what": {"hold"}, "k": {text}, "for": {text}}} {
			page, status = s.post("/act", bad)
			require.Equal(t, http.StatusBadRequest, status)
			s.shows(page)
		}
	}
}
