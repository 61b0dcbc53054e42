package web

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// A frame is what all views have in common.
type frame struct {
	View string // the name of the template
	Data any
	Act  bool // there are buttons
	// Namespace is that whose keys and jobs the page shows, or "". Store is what they are in.
	Namespace, Store string
	Made             time.Time // when the view was made
	Every            int       // after how many seconds it renews itself, or 0
	Renewals         []renewal // to choose from; none if the view does not renew itself
}

// A renewal is a link to the view that renews itself.
type renewal struct {
	Title, Link string
	Current     bool
}

// renewalsOf returns the choices for a view.
func renewalsOf(r *http.Request, every int) (all []renewal) {
	for _, seconds := range []int{0, 5, 30} {
		query := r.URL.Query()
		query.Del("every")
		title := "off"
		if seconds > 0 {
			query.Set("every", strconv.Itoa(seconds))
			title = fmt.Sprintf("every %d s", seconds)
		}
		link := "./" + strings.TrimPrefix(r.URL.Path, "/")
		if len(query) > 0 {
			link += "?" + query.Encode()
		}
		all = append(all, renewal{title, link, seconds == every})
	}
	return all
}

// write writes a view, or an error.
func (h *handler) write(w http.ResponseWriter, r *http.Request, status int, name string, data any, err error) {
	f := frame{Namespace: h.inspector.Namespace(), Store: h.store(), Made: time.Now()}
	_, f.Act = h.actorOf(r)
	if err == nil && name != "confirm" {
		if f.Every, err = everyOf(r); f.Every > 0 {
			w.Header().Set("Refresh", strconv.Itoa(f.Every))
		}
		f.Renewals = renewalsOf(r, f.Every)
	}
	if err != nil {
		status, name, data, f.Renewals = statusOf(err), "error", h.textOf(err), nil
	}
	f.View, f.Data = name, data
	var page bytes.Buffer
	if err := h.views.ExecuteTemplate(&page, name+".html", f); err != nil {
		http.Error(w, "the page cannot be shown: "+h.textOf(err), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = page.WriteTo(w)
}

// store returns what the page says of the store: without its address if keys are redacted.
func (h *handler) store() string {
	store := h.inspector.Store()
	if h.show != nil {
		store, _, _ = strings.Cut(store, " ")
	}
	return store
}
