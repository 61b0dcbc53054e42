// Package web is a page for operators, as an http.Handler. It shows which keys are held and by
// which process, the waiters, the work that is done, and the runs of the jobs of guardcron.
//
//	i, err := inspect.New(g)
//	page, err := web.New(i)
//	http.Handle("/onerun/", http.StripPrefix("/onerun/", page))
//
// The page is read-only without WithActions. It does not authenticate anybody: put it behind what
// does that for your other internal pages. It works under any prefix, without scripts, and never
// looks at the store by itself.
package web

import (
	"bytes"
	"embed"
	"html/template"
	"net/http"
	"path"
	"strings"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/inspect"
)

//go:embed page
var files embed.FS

type handler struct {
	inspector *inspect.Inspector
	actor     func(*http.Request) (actor string, ok bool) // nil: the page is read-only
	show      func(key string) string                     // nil: keys are shown as they are
	tokens    *tokens                                     // of keys in links, if keys are redacted
	origins   []string                                    // of actions, beside the page's own
	views     *template.Template
	mux       *http.ServeMux
}

// An Option is a setting of New.
type Option func(*handler)

// WithActions allows the requests for which f returns true to act: to break leases, forget done
// markers, keep keys busy, and pause, resume and trigger jobs. f returns the operator's name,
// which the store records (inspect.By). It must not take that name from anything that the browser
// can choose freely. Requests from other origins are refused in any case. Defaults to nobody: the
// page is read-only.
func WithActions(f func(*http.Request) (actor string, ok bool)) Option {
	return func(h *handler) { h.actor = f }
}

// WithKeys shows f(key) instead of each key, for keys with personal data. Links then name keys in
// a way that only this handler understands, so they do not outlast it. Several replicas need a
// load balancer that keeps a browser on one of them. Labels, owners and names of jobs are shown as
// they are. Defaults to the keys themselves.
func WithKeys(f func(key string) string) Option {
	return func(h *handler) { h.show = f }
}

// WithTrustedOrigins names origins from which actions are taken, such as "https://ops.example". The
// page knows its own by the Host header. Name it here if a proxy in front of the page changes that
// header: the page then refuses its own forms, unless the browser uses HTTPS. Defaults to none.
func WithTrustedOrigins(origins ...string) Option {
	return func(h *handler) { h.origins = append(h.origins, origins...) }
}

// New returns the page. A nil Inspector, or an origin that is none, is a *guard.SettingError.
func New(i *inspect.Inspector, opts ...Option) (http.Handler, error) {
	if i == nil {
		return nil, &guard.SettingError{Setting: "inspector", Value: "nil", Reason: "must not be nil"}
	}
	h := &handler{inspector: i, mux: http.NewServeMux()}
	for _, opt := range opts {
		opt(h)
	}
	if h.show != nil {
		h.tokens = newTokens()
	}
	h.views = template.Must(template.New("").Funcs(h.functions()).ParseFS(files, "page/*.html"))
	for pattern, view := range map[string]func(*http.Request) (any, string, error){
		"GET /{$}": h.keys, "GET /key": h.key, "GET /processes": h.processes, "GET /jobs": h.jobs, "GET /job": h.job,
		"GET /log": h.log, "GET /confirm": h.confirm,
	} {
		h.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			data, name, err := view(r)
			h.write(w, r, http.StatusOK, name, data, err)
		})
	}
	for _, file := range []string{"style.css", "icon.svg"} {
		h.mux.HandleFunc("GET /"+file, func(w http.ResponseWriter, r *http.Request) {
			http.ServeFileFS(w, r, files, "page/"+file)
		})
	}
	h.mux.HandleFunc("POST /find", h.find) // from any origin: it changes nothing
	protection := http.NewCrossOriginProtection()
	for _, origin := range h.origins {
		if err := protection.AddTrustedOrigin(origin); err != nil {
			return nil, &guard.SettingError{
				Setting: "WithTrustedOrigins", Value: origin, Reason: "must be an origin such as https://ops.example",
			}
		}
	}
	h.mux.Handle("POST /act", protection.Handler(http.HandlerFunc(h.act)))
	return h, nil
}

// policy allows nothing but our own style, and forms that come back to us.
const policy = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP serves the page. A prefix, if there is one, is already stripped.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "same-origin")
	header.Set("Cache-Control", "no-store")
	if !strings.HasPrefix(r.URL.Path, "/") {
		if r.URL.Path == "" && !strings.HasSuffix(originalPath(r), "/") {
			// all links are relative to the slash at the end
			http.Redirect(w, r, path.Base(originalPath(r))+"/", http.StatusMovedPermanently)
			return
		}
		r = r.Clone(r.Context())
		r.URL.Path = "/" + r.URL.Path
	}
	h.mux.ServeHTTP(w, r)
}

// originalPath returns the path as the client has sent it.
func originalPath(r *http.Request) string {
	p, _, _ := strings.Cut(r.RequestURI, "?")
	return p
}

// A frame is what all views have in common.
type frame struct {
	View string // the name of the template
	Data any
	Act  bool // there are buttons
}

// write writes a view, or an error.
func (h *handler) write(w http.ResponseWriter, r *http.Request, status int, name string, data any, err error) {
	if err != nil {
		status, name, data = statusOf(err), "error", h.textOf(err)
	}
	_, acts := h.actorOf(r)
	var page bytes.Buffer
	if err := h.views.ExecuteTemplate(&page, name+".html", frame{name, data, acts}); err != nil {
		http.Error(w, "the page cannot be shown: "+h.textOf(err), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = page.WriteTo(w)
}

// actorOf returns the name of the operator who has sent the request, and whether the request may
// act.
func (h *handler) actorOf(r *http.Request) (string, bool) {
	if h.actor == nil {
		return "", false
	}
	actor, ok := h.actor(r)
	return actor, ok && actor != ""
}
