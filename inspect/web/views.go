package web

import (
	"cmp"
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
	// operationsOfKey is in how many operations the history of a key is looked for: in all.
	operationsOfKey = 1000
	jobsOfPage      = 100
)

// functions are what templates call.
func (h *handler) functions() template.FuncMap {
	return template.FuncMap{
		"link": h.link, "text": textHTML, "time": timeText, "stamp": func(t time.Time) string { return t.UTC().Format(time.RFC3339) }, "span": spanText, "left": leftText,
		"duration": durationText, "class": classOf,
		"query":  url.QueryEscape,
		"shown":  func(key string) template.HTML { return textHTML(h.shown(key)) },
		"reason": func(text string) template.HTML { return textHTML(h.reason(text)) },
		"among": func(n int) string {
			if n == driver.Unlimited {
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

// classOf returns the class of a result. The store may have any text, and a class can hide one.
func classOf(o guardcron.Result) string {
	switch o {
	case guardcron.Running, guardcron.Ran, guardcron.Failed, guardcron.Lost, guardcron.Skipped, guardcron.Missed:
		return string(o)
	default:
		return ""
	}
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
	Work    string // the kind of work, if it is known
	Waiters int
	Age     string // since when it is done, or "" if it is not known
	Holders []holderView
	History []inspect.Operation // the changes that operators asked for, the newest first
}

type holderView struct {
	inspect.Holder
	Age string // "" if it is not known
}

func viewOf(k inspect.Key, names work) keyView {
	v := keyView{Key: k, State: k.State(), Work: names.of(k.Name), Waiters: k.Waiting()}
	if m := k.Marker; m != nil {
		v.Work = cmp.Or(m.Name, v.Work)
		if !m.DoneAt.IsZero() {
			v.Age = spanText(max(k.Time.Sub(m.DoneAt), 0))
		}
	}
	for _, h := range k.Holders {
		age := ""
		if since := h.Since(); !since.IsZero() {
			age = spanText(max(k.Time.Sub(since), 0))
		}
		v.Holders = append(v.Holders, holderView{h, age})
	}
	return v
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
	v := viewOf(k, h.reported(r))
	all, err := h.inspector.Operations(r.Context(), operationsOfKey)
	for _, o := range all {
		if o.Job == "" && o.Key == key {
			v.History = append(v.History, o)
		}
	}
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

func jobViewOf(info guardcron.JobInfo, records []guardcron.Record) jobView {
	v := jobView{JobInfo: info, Records: records}
	v.Strip = slices.Clone(records[:min(len(records), stripOfJob)])
	slices.Reverse(v.Strip)
	return v
}

// A jobsPage is a page of jobs.
type jobsPage struct {
	Jobs  []jobView
	All   int
	First bool
	From  string // the last job of the page, if there are others after it
}

func (h *handler) jobs(r *http.Request) (any, string, error) {
	if h.noControl != nil {
		return nil, "", h.noControl
	}
	all, err := h.control.List(r.Context())
	if err != nil {
		return nil, "", err
	}
	from := r.URL.Query().Get("from")
	page := jobsPage{All: len(all), First: from == ""}
	all = slices.DeleteFunc(all, func(j guardcron.JobInfo) bool { return from != "" && j.Name <= from })
	if len(all) > jobsOfPage {
		all = all[:jobsOfPage]
		page.From = all[jobsOfPage-1].Name
	}
	names := make([]string, len(all))
	for i, info := range all {
		names[i] = info.Name
	}
	records, err := h.control.RecordsOf(r.Context(), names, stripOfJob)
	if err != nil {
		return nil, "", err
	}
	for i, info := range all {
		page.Jobs = append(page.Jobs, jobViewOf(info, records[i]))
	}
	return page, "jobs", nil
}

func (h *handler) job(r *http.Request) (any, string, error) {
	if h.noControl != nil {
		return nil, "", h.noControl
	}
	all, err := h.control.List(r.Context())
	if err != nil {
		return nil, "", err
	}
	info := guardcron.JobInfo{Name: r.URL.Query().Get("name")} // one that no process has announced
	if i := slices.IndexFunc(all, func(j guardcron.JobInfo) bool { return j.Name == info.Name }); i >= 0 {
		info = all[i]
	}
	records, err := h.control.Records(r.Context(), info.Name, recordsOfJob)
	return jobViewOf(info, records), "job", err
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
