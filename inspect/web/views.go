package web

import (
	"cmp"
	"context"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/inspect"
	"github.com/seed-1795987d/onerun/internal/printable"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

const (
	keysOfPage    = 100
	stripOfJob    = 30 // ticks
	recordsOfJob  = 200
	operationsNow = 200
)

// functions are what templates call.
func (h *handler) functions() template.FuncMap {
	return template.FuncMap{
		"link": h.link, "text": textHTML, "time": timeText, "span": spanText, "left": leftText,
		"duration": durationText,
		"query":    url.QueryEscape,
		"shown":    func(key string) template.HTML { return textHTML(h.shown(key)) },
		"reason":   func(text string) template.HTML { return textHTML(h.reason(text)) },
		"among": func(n int) string {
			if n == driver.Any {
				return "any number"
			}
			return fmt.Sprint(n)
		},
		"details": func(o inspect.Operation) string {
			if o.For > 0 {
				return "for " + spanText(o.For)
			}
			return ""
		},
	}
}

// textHTML returns a text of the store, or of a request, as all views show it. Nothing in it is
// invisible, and its direction does not change that of the text around it. Attributes get it
// without the tags.
func textHTML(text any) template.HTML {
	escaped := template.HTMLEscapeString(printable.Text(fmt.Sprint(text)))
	return template.HTML("<bdi>" + escaped + "</bdi>")
}

func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}

// spanText returns a duration in at most two units.
func spanText(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + spanText(-d)
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return fmt.Sprintf("%dm %ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh %dm", d/time.Hour, d%time.Hour/time.Minute)
	default:
		const day = 24 * time.Hour
		return fmt.Sprintf("%dd %dh", d/day, d%day/time.Hour)
	}
}

// durationText returns a duration as forms take it: 2h, although its String is 2h0m0s.
func durationText(d time.Duration) string {
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

func leftText(d time.Duration) string {
	if d < 0 {
		return "does not end"
	}
	return spanText(d)
}

// A keyView is a key, with the age of its holders.
type keyView struct {
	inspect.Key
	State   driver.KeyState
	Holders []holderView
	Changed *inspect.Operation // the newest change that an operator asked for, or nil
}

type holderView struct {
	inspect.Holder
	Age string // "" if it is not known
}

func viewOf(k inspect.Key) keyView {
	v := keyView{Key: k, State: k.State()}
	for _, h := range k.Holders {
		age := ""
		if since := h.Since(); !since.IsZero() {
			age = spanText(max(k.Time.Sub(since), 0))
		}
		v.Holders = append(v.Holders, holderView{h, age})
	}
	return v
}

// keys lists keys by prefix.
func (h *handler) keys(r *http.Request) (any, string, error) {
	prefix, err := h.linkedPart(r, "prefix")
	if err != nil {
		return nil, "", err
	}
	cursor, err := h.linkedPart(r, "cursor") // the last key of a page, on some backends
	if err != nil {
		return nil, "", err
	}
	keys, next, err := h.inspector.List(r.Context(), prefix, cursor, keysOfPage)
	if err != nil {
		return nil, "", err
	}
	if next != "" {
		next = h.link(next)
	}
	page := struct {
		Prefix, PrefixLink, Next string
		Keys                     []keyView
		First                    bool
	}{Prefix: prefix, PrefixLink: r.URL.Query().Get("prefix"), Next: next, First: cursor == ""}
	for _, k := range keys {
		page.Keys = append(page.Keys, viewOf(k))
	}
	slices.SortFunc(page.Keys, func(a, b keyView) int {
		return cmp.Or(cmp.Compare(rank(a.State), rank(b.State)), strings.Compare(a.Name, b.Name))
	})
	return page, "keys", nil
}

// rank orders the keys of a page: what is held comes first, and what is done last.
func rank(s driver.KeyState) int {
	return slices.Index([]driver.KeyState{driver.KeyHeld, driver.KeyKept, driver.KeyForeign, driver.KeyDone}, s)
}

// linkedPart returns the key that a link has under a name. It is "" if the link has none.
func (h *handler) linkedPart(r *http.Request, name string) (string, error) {
	link := r.URL.Query().Get(name)
	if link == "" {
		return "", nil
	}
	return h.linked(link)
}

func (h *handler) key(r *http.Request) (any, string, error) {
	key, err := h.linked(r.URL.Query().Get("k"))
	if err != nil {
		return nil, "", err
	}
	k, err := h.inspector.Show(r.Context(), key)
	if err != nil {
		return nil, "", err
	}
	v := viewOf(k)
	v.Changed, err = h.inspector.LastOperation(r.Context(), key)
	return v, "key", err
}

func (h *handler) processes(r *http.Request) (any, string, error) {
	type view struct {
		inspect.Process
		Age string
	}
	var all []view
	processes, err := h.inspector.Processes(r.Context())
	for _, p := range processes {
		all = append(all, view{p, spanText(max(time.Since(p.Time), 0))})
	}
	return all, "processes", err
}

// A jobView is a job with its newest ticks, the oldest first.
type jobView struct {
	guardcron.JobInfo
	Strip   []guardcron.Record
	Records []guardcron.Record
}

func (h *handler) jobView(ctx context.Context, info guardcron.JobInfo, n int) (jobView, error) {
	records, err := h.inspector.Records(ctx, info.Name, n)
	v := jobView{JobInfo: info, Records: records}
	v.Strip = slices.Clone(records[:min(len(records), stripOfJob)])
	slices.Reverse(v.Strip)
	return v, err
}

func (h *handler) jobs(r *http.Request) (any, string, error) {
	all, err := h.inspector.Jobs(r.Context())
	if err != nil {
		return nil, "", err
	}
	views := make([]jobView, len(all))
	for i, info := range all {
		if views[i], err = h.jobView(r.Context(), info, stripOfJob); err != nil {
			return nil, "", err
		}
	}
	return views, "jobs", nil
}

func (h *handler) job(r *http.Request) (any, string, error) {
	all, err := h.inspector.Jobs(r.Context())
	if err != nil {
		return nil, "", err
	}
	info := guardcron.JobInfo{Name: r.URL.Query().Get("name")} // one that no process has announced
	if i := slices.IndexFunc(all, func(j guardcron.JobInfo) bool { return j.Name == info.Name }); i >= 0 {
		info = all[i]
	}
	v, err := h.jobView(r.Context(), info, recordsOfJob)
	return v, "job", err
}

func (h *handler) log(r *http.Request) (any, string, error) {
	all, err := h.inspector.Operations(r.Context(), operationsNow)
	return all, "log", err
}

// find leads to a key, or to the keys with a prefix.
func (h *handler) find(w http.ResponseWriter, r *http.Request) {
	text := r.PostForm.Get("text")
	to := "key?k=" + template.URLQueryEscaper(h.link(text))
	if prefix, ok := strings.CutSuffix(text, "*"); ok || text == "" {
		to = "./"
		if prefix != "" {
			to += "?prefix=" + template.URLQueryEscaper(h.link(prefix))
		}
	}
	redirect(w, to, http.StatusSeeOther)
}

// redirect leads to a relative address. http.Redirect would make it absolute, without the prefix
// that was stripped.
func redirect(w http.ResponseWriter, to string, status int) {
	w.Header().Set("Location", to)
	w.WriteHeader(status)
}
