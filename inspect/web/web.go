// Package web is a page for operators, as an http.Handler. It shows which keys are held and by
// which process, the waiters, the work that is done, and the runs of the jobs of guardcron.
//
//	g, err := guard.New(single.New(rdb), guard.WithNamespace("billing"))
//	i, err := inspect.New(g)
//	page, err := web.New(i)
//	http.Handle("/onerun/", http.StripPrefix("/onerun/", page))
//
// The page is read-only without WithActions. It does not authenticate anybody: put it behind what
// does that for your other internal pages. It works under any prefix, without scripts. It looks at
// the store only for a viewer. A view renews itself if its address has every=SECONDS, from 2 to
// 3600.
//
// The first view looks at all keys, for three seconds at most and for one viewer at a time. It
// shows the keys that are most likely to be stuck: those for which others wait, then those that are
// held, the oldest first. In its address, state=held, waiting, kept or done, kind=http (or another
// adapter, or a name that processes report), and prefix leave out the others.
package web

import (
	"embed"
	"html/template"
	"net"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/inspect"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

//go:embed page
var files embed.FS

type handler struct {
	inspector *inspect.Inspector
	control   *guardcron.Control
	noControl error                                       // why there is none
	actor     func(*http.Request) (actor string, ok bool) // nil: the page is read-only
	show      func(key string) string                     // nil: keys are shown as they are
	tokens    *tokens                                     // of keys in links, if keys are redacted
	hosts     []string                                    // to which the page answers; all if empty
	origins   []string                                    // of forms, beside the page's own
	surveys   chan struct{}                               // has one while a viewer surveys all keys
	views     *template.Template
	mux       *http.ServeMux
}

// An Option is a setting of New.
type Option func(*handler)

// WithActions allows the requests for which f returns true to act: to break leases, forget done
// markers, keep keys busy, and pause, resume and trigger jobs. f returns the operator's name,
// which the store records (inspect.By). It must not take that name from anything that the browser
// can choose freely. Requests from other origins are refused in any case. It needs WithHosts.
// Defaults to nobody: the page is read-only.
func WithActions(f func(*http.Request) (actor string, ok bool)) Option {
	return func(h *handler) { h.actor = f }
}

// WithHosts names the hosts under which the page is served, such as "ops.example", without a port.
// The page refuses requests for other hosts with 421 Misdirected Request. Otherwise, a site that
// points a name of its own at the page's address (DNS rebinding) could read it, and act, through
// the browser of an operator. A login whose cookies are for the page's own name prevents that, too.
// Defaults to all hosts, for a page that is read-only.
func WithHosts(hosts ...string) Option {
	return func(h *handler) { h.hosts = append(h.hosts, hosts...) }
}

// WithKeys shows f(key) instead of each key, for keys with personal data. Links then name keys in
// a way that only this handler understands, so they do not outlast it. Several replicas need a
// load balancer that keeps a browser on one of them. The reasons in records of jobs are left out,
// because errors name keys. Labels, owners, names of jobs, and what operators have written are
// shown as they are. Defaults to the keys themselves.
func WithKeys(f func(key string) string) Option {
	return func(h *handler) { h.show = f }
}

// WithTrustedOrigins names origins from which forms are taken, such as "https://ops.example". The
// page knows its own by the Host header. Name it here if a proxy in front of the page changes that
// header: the page then refuses its own forms, unless the browser uses HTTPS. Defaults to none.
func WithTrustedOrigins(origins ...string) Option {
	return func(h *handler) { h.origins = append(h.origins, origins...) }
}

// maxBody bounds the body of a request in bytes. Forms of the page are shorter.
const maxBody = 16 << 10

// New returns the page. A nil Inspector or Option, WithActions without WithHosts, and a bad host or
// origin are a *guard.SettingError.
func New(i *inspect.Inspector, opts ...Option) (http.Handler, error) {
	if i == nil {
		return nil, &guard.SettingError{Setting: "inspector", Value: "nil", Reason: "must not be nil"}
	}
	h := &handler{inspector: i, surveys: make(chan struct{}, 1), mux: http.NewServeMux()}
	h.control, h.noControl = guardcron.NewControl(i.Guard())
	for _, opt := range opts {
		if opt == nil {
			return nil, &guard.SettingError{Setting: "Option", Value: "nil", Reason: "must not be nil"}
		}
		opt(h)
	}
	if h.actor != nil && len(h.hosts) == 0 {
		return nil, &guard.SettingError{Setting: "WithHosts", Reason: "must name the hosts of a page that takes actions (WithActions)"}
	}
	for _, host := range h.hosts {
		if host == "" || hostOf(host) != host || strings.ContainsAny(host, "/@*") {
			return nil, &guard.SettingError{
				Setting: "WithHosts", Value: host, Reason: "must be the name or the address of a host, without a port, such as ops.example",
			}
		}
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
	protection := http.NewCrossOriginProtection()
	for _, origin := range h.origins {
		if err := protection.AddTrustedOrigin(origin); err != nil {
			return nil, &guard.SettingError{
				Setting: "WithTrustedOrigins", Value: origin, Reason: "must be an origin such as https://ops.example",
			}
		}
	}
	for pattern, form := range map[string]http.HandlerFunc{"POST /find": h.find, "POST /act": h.act} {
		h.mux.Handle(pattern, protection.Handler(h.parsed(form)))
	}
	return h, nil
}

// hostOf returns the host of an address that may have a port.
func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return strings.TrimSuffix(strings.TrimPrefix(address, "["), "]")
}

// parsed reads the form before it calls next. It reads no files.
func (h *handler) parsed(next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseForm(); err != nil {
			h.write(w, r, 0, "", nil, err)
			return
		}
		next(w, r)
	})
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
	if len(h.hosts) > 0 && !slices.ContainsFunc(h.hosts, func(host string) bool { return strings.EqualFold(host, hostOf(r.Host)) }) {
		http.Error(w, "the page does not answer to this host", http.StatusMisdirectedRequest)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	if !strings.HasPrefix(r.URL.Path, "/") {
		if r.URL.Path == "" && !strings.HasSuffix(originalPath(r), "/") {
			// all links are relative to the slash at the end
			redirect(w, path.Base(originalPath(r))+"/", http.StatusMovedPermanently)
			return
		}
		r = r.Clone(r.Context())
		r.URL.Path = "/" + r.URL.Path
	}
	if path.Clean(r.URL.Path) != r.URL.Path {
		http.NotFound(w, r) // a ServeMux would lead to a path without the prefix
		return
	}
	h.mux.ServeHTTP(w, r)
}

// originalPath returns the path as the client has sent it.
func originalPath(r *http.Request) string {
	p, _, _ := strings.Cut(r.RequestURI, "?")
	return p
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
