package web

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/inspect"
)

// kinds are the kinds of work that a key says by how it begins, and their names.
var kinds = []struct{ Kind, Title string }{
	{"http", "HTTP request"}, {"grpc", "gRPC call"}, {"asynq", "asynq task"}, {"asynq-tick", "asynq schedule"},
	{"asynq-missed", "asynq schedule"}, {"cron", "cron job"}, {"gocron", "gocron job"}, {"gocron-leader", "gocron leader"},
}

// adapterOf returns the kind of work of a key and its name, or "" for a key of the application.
func adapterOf(key string) (kind, title string) {
	begin, _, ok := strings.Cut(key, ":")
	at := slices.IndexFunc(kinds, func(k struct{ Kind, Title string }) bool { return k.Kind == begin })
	if !ok || at < 0 {
		return "", ""
	}
	return begin, kinds[at].Title
}

// work is what processes have reported of the keys that they hold: the kind of work
// (guard.WithName) by key.
type work map[string]string

// reported returns what processes have reported. A report that cannot be read is left out: what is
// held counts.
func (h *handler) reported(r *http.Request) work {
	all := work{}
	processes, err := h.inspector.Processes(r.Context())
	if err != nil {
		return all
	}
	for _, p := range processes {
		for _, l := range p.Held {
			if l.Name != "" {
				all[l.Key] = l.Name
			}
		}
	}
	return all
}

// of returns the kind of work of a key, in words.
func (w work) of(key string) string {
	if name := w[key]; name != "" {
		return name
	}
	_, title := adapterOf(key)
	return title
}

// A filter is what the address of the view of keys says.
type filter struct {
	State, Kind  string
	Prefix, Link string // Link is the prefix in a link
	cursor       string
	from         int        // the index of the first key of the page
	kept         url.Values // the parameters that links of the view keep
}

// states are the values of state, beside "".
var states = []string{"held", "waiting", "kept", "done"}

// maxKeys is how many keys that are not done can be paged through.
const maxKeys = 1000

func (h *handler) filterOf(r *http.Request) (f filter, err error) {
	query := r.URL.Query()
	f.State, f.Kind, f.Link = query.Get("state"), query.Get("kind"), query.Get("prefix")
	if f.State != "" && !slices.Contains(states, f.State) {
		return f, badForm("state: %q must be one of %s", f.State, strings.Join(states, ", "))
	}
	if f.Prefix, err = h.linkedPart(r, "prefix"); err != nil {
		return f, err
	}
	if text := query.Get("from"); text != "" {
		if f.from, err = strconv.Atoi(text); err != nil || f.from < 0 || f.from >= maxKeys {
			return f, badForm("from: %q must be a number below %d", text, maxKeys)
		}
	}
	f.cursor, err = h.linkedPart(r, "cursor") // the last key of a page, on some backends
	f.kept = url.Values{}
	for _, name := range []string{"state", "kind", "prefix", "every"} {
		if value := query.Get(name); value != "" {
			f.kept.Set(name, value)
		}
	}
	return f, err
}

// With returns the address of the view with another value of a parameter.
func (f filter) With(name, value string) string {
	query := url.Values{}
	for name, values := range f.kept {
		query[name] = values
	}
	query.Del(name)
	if value != "" {
		query.Set(name, value)
	}
	if len(query) == 0 {
		return "./"
	}
	return "./?" + query.Encode()
}

// match returns what leaves out keys of other kinds, or nil.
func (f filter) match(names work) func(key string) bool {
	if f.Kind == "" {
		return nil
	}
	return func(key string) bool {
		kind, _ := adapterOf(key)
		return kind == f.Kind || names[key] == f.Kind
	}
}

// A keysPage is the first view.
type keysPage struct {
	filter
	Survey    inspect.Survey // not of the page of done keys
	Keys      []keyView
	oldest    time.Duration // for how long the oldest lease has been held
	Next      string        // address of the next page, or ""
	First     bool
	Kinds     []string // to choose from
	AnyFilter bool
}

// Stuck says in a sentence whether anything may be stuck.
func (p *keysPage) Stuck() string {
	s := p.Survey
	seen := ""
	if s.More {
		seen = " The time was over before all keys were seen, so there may be more: give a prefix."
	}
	switch {
	case s.Held+s.Kept == 0:
		return "Nothing is held." + seen
	case s.Waited == 0:
		return fmt.Sprintf("Nobody waits. The longest lease has been held for %s.%s", spanText(p.oldest), seen)
	default:
		return fmt.Sprintf("Others wait for %d of the keys. The longest lease has been held for %s.%s", s.Waited, spanText(p.oldest), seen)
	}
}

// keys is the view of keys: what may be stuck first, and what is done in pages.
func (h *handler) keys(r *http.Request) (any, string, error) {
	f, err := h.filterOf(r)
	if err != nil {
		return nil, "", err
	}
	page := &keysPage{filter: f, First: f.cursor == "" && f.from == 0, AnyFilter: f.State+f.Kind+f.Prefix != ""}
	names := h.reported(r)
	if f.State == "done" {
		err = h.done(r, page, names)
	} else {
		err = h.survey(r, page, names)
	}
	for _, k := range kinds {
		page.Kinds = append(page.Kinds, k.Kind)
	}
	return page, "keys", err
}

// survey looks at all keys. It does so for one viewer at a time, so that many viewers of a large
// store cost no more than one.
func (h *handler) survey(r *http.Request, page *keysPage, names work) (err error) {
	select {
	case h.surveys <- struct{}{}:
		defer func() { <-h.surveys }()
	case <-r.Context().Done():
		return r.Context().Err()
	}
	q := inspect.Query{
		Prefix: page.Prefix, Match: page.match(names), State: driver.KeyState(page.State), Limit: page.from + keysOfPage,
	}
	if page.Survey, err = h.inspector.Survey(r.Context(), q); err != nil {
		return err
	}
	page.oldest = oldestOf(page.Survey.Keys)
	for _, k := range page.Survey.Keys[min(page.from, len(page.Survey.Keys)):] {
		page.Keys = append(page.Keys, viewOf(k, names))
	}
	if to := page.from + keysOfPage; to < min(page.Survey.Found, maxKeys) {
		page.Next = page.With("from", strconv.Itoa(to))
	}
	return nil
}

// oldestOf returns for how long the oldest lease among the keys has been held.
func oldestOf(keys []inspect.Key) (oldest time.Duration) {
	for _, k := range keys {
		for _, holder := range k.Holders {
			if at := holder.Since(); !at.IsZero() && !holder.Kept {
				oldest = max(oldest, k.Time.Sub(at))
			}
		}
	}
	return oldest
}

// donePages bounds how many pages of keys are read for one page of done keys.
const donePages = 20

// done reads a page of done keys.
func (h *handler) done(r *http.Request, page *keysPage, names work) error {
	match, cursor := page.match(names), page.cursor
	for range donePages {
		keys, next, err := h.inspector.List(r.Context(), page.Prefix, cursor, keysOfPage)
		if err != nil {
			return err
		}
		for _, k := range keys {
			if k.State() == driver.KeyDone && (match == nil || match(k.Name)) {
				page.Keys = append(page.Keys, viewOf(k, names))
			}
		}
		if cursor = next; cursor == "" || len(page.Keys) >= keysOfPage {
			break
		}
	}
	slices.SortFunc(page.Keys, func(a, b keyView) int { return strings.Compare(a.Name, b.Name) })
	if cursor != "" {
		page.Next = page.With("cursor", h.link(cursor))
	}
	return nil
}

// everyOf returns after how many seconds the view renews itself, or 0.
func everyOf(r *http.Request) (int, error) {
	text := r.URL.Query().Get("every")
	if text == "" {
		return 0, nil
	}
	every, err := strconv.Atoi(text)
	if err != nil || every < 2 || every > 3600 {
		return 0, badForm("every: %q must be a number of seconds from 2 to 3600", text)
	}
	return every, nil
}
