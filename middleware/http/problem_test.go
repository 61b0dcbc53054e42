package guardhttp_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// What must not show in a problem.
const (
	problemKey    = "SECRETKEY"
	problemScope  = "SECRETSCOPE"
	problemBody   = "SECRETBODY"
	problemReason = "SECRETREASON"
)

// A problemCase makes the middleware refuse a request.
type problemCase struct {
	code    idempotency.Result
	status  int
	title   string // if the draft gives one
	retry   string // what Retry-After matches, or that there is none
	setup   contentSetup
	before  bool   // another request came before
	key     string // or problemKey
	noKey   bool
	body    string
	outcome idempotency.Result // or code
}

var problemCases = map[string]problemCase{
	"no key":          {code: idempotency.KeyMissing, status: 400, title: "Idempotency-Key is missing", noKey: true},
	"a bad key":       {code: idempotency.KeyInvalid, status: 400, key: problemKey + `"`},
	"another request": {code: idempotency.Mismatch, status: 422, title: "Idempotency-Key is already used", before: true, body: problemBody + "2"},
	"a key that is done": {code: idempotency.Done, status: 409, retry: `^[0-9]{5}$`, before: true,
		setup: contentSetup{opts: []guardhttp.Option{idempotency.WithMode(idempotency.Reject)}}},
	"an answer that was streamed": {code: idempotency.NotReplayable, status: 409, before: true,
		setup: contentSetup{handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.(http.Flusher).Flush()
		}}},
	"a body that is refused": {code: idempotency.BodyInvalid, status: 400, setup: contentSetup{opts: []guardhttp.Option{
		guardhttp.WithFingerprint(func(*http.Request, []byte) ([]byte, error) { return nil, errors.New(problemReason) })}}},
	"a large body": {code: idempotency.BodyTooLarge, status: 413, setup: contentSetup{opts: []guardhttp.Option{guardhttp.WithMaxBody(3)}}},
	"no scope": {code: idempotency.Refused, status: 500, setup: contentSetup{opts: []guardhttp.Option{
		guardhttp.WithScope(func(*http.Request) (string, error) { return problemScope, errors.New(problemReason) })}}},
	"a request that has ended": {code: idempotency.Canceled, status: 503, retry: "^1$",
		setup: contentSetup{mount: func(idempotent func(http.Handler) http.Handler, h http.Handler) http.Handler {
			inner := idempotent(h)
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				ctx, cancel := context.WithCancelCause(r.Context())
				cancel(errors.New(problemReason))
				inner.ServeHTTP(w, r.WithContext(ctx))
			})
		}}},
	"a handler that takes too long": {code: "given_up", outcome: idempotency.Ran, status: 503, retry: "^1$",
		setup: contentSetup{opts: []guardhttp.Option{idempotency.WithMaxHold(20 * time.Millisecond)},
			handler: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }}},
}

// problemSend sends the request of a case.
func problemSend(t *testing.T, site *contentSite, c problemCase, path, body string) httpAnswer {
	t.Helper()
	edits := []contentEdit{contentHeader("X-Tenant", problemScope)}
	switch {
	case c.noKey:
	case c.key != "":
		edits = append(edits, contentHeader("Idempotency-Key", c.key))
	default:
		edits = append(edits, contentHeader("Idempotency-Key", problemKey))
	}
	return site.send(t, http.MethodPost, path, body, edits...)
}

const problemDocs = "https://github.com/seed-1795987d/onerun/blob/v0.1.0/middleware/http/PROBLEMS.md"

// The page that problems link to is that of the newest version in the changelog.
func TestProblem_docsAreOfThisVersion(t *testing.T) {
	t.Parallel()
	changes, err := os.ReadFile("../../CHANGELOG.md")
	require.NoError(t, err)
	version := regexp.MustCompile(`(?m)^## \[([0-9.]+)\]`).FindSubmatch(changes)
	require.NotNil(t, version)
	require.Contains(t, problemDocs, "/blob/v"+string(version[1])+"/")
}

func TestProblem_documents(t *testing.T) {
	t.Parallel()
	store := contentRedis(t)
	closed, err := guard.New(single.New(store.rdb), guard.WithNamespace("test"))
	require.NoError(t, err)
	require.NoError(t, closed.Close(t.Context()))
	pages, err := os.ReadFile("PROBLEMS.md")
	require.NoError(t, err)

	cases := map[string]problemCase{"a store that is away": {code: idempotency.Unavailable, status: 503, retry: "^1$"}}
	for name, c := range problemCases {
		cases[name] = c
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			contentProtocols(t, func(t *testing.T, http2 bool) {
				c.setup.http2 = http2
				if c.setup.handler == nil {
					c.setup.handler = func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, problemReason) }
				}
				for _, docs := range []string{"", "https://docs.example/keys?lang=en&v=1"} {
					setup := c.setup
					want := problemDocs
					if docs != "" {
						want = docs
						setup.opts = append([]guardhttp.Option{guardhttp.WithDocs(docs)}, setup.opts...)
					}
					of := store
					if c.code == idempotency.Unavailable {
						of = &contentStore{server: store.server, rdb: store.rdb, guard: closed}
					}
					site := of.site(t, setup)
					path := "/" + rand.Text()
					if c.before {
						problemSend(t, site, c, path, problemBody)
						site.outcome(t)
					}
					body := problemBody
					if c.body != "" {
						body = c.body
					}
					a := problemSend(t, site, c, path, body)
					require.Equal(t, c.status, a.status)
					require.Equal(t, []string{"application/problem+json"}, a.header["Content-Type"])
					require.Equal(t, []string{"en"}, a.header["Content-Language"])
					require.Equal(t, []string{"no-store"}, a.header["Cache-Control"])
					require.Equal(t, []string{"<" + want + "#" + string(c.code) + `>; rel="describedby"; type="text/html"`}, a.header["Link"])
					require.EqualValues(t, len(a.body), a.length)
					require.False(t, a.replayed())
					if c.retry == "" {
						require.Empty(t, a.header["Retry-After"])
					} else {
						require.Len(t, a.header["Retry-After"], 1)
						require.Regexp(t, c.retry, a.header.Get("Retry-After"))
					}

					var members map[string]any
					require.NoError(t, json.Unmarshal([]byte(a.body), &members), a.body)
					require.Len(t, members, 5, "%v", members)
					require.Equal(t, "urn:onerun:problem:"+string(c.code), members["type"])
					require.Equal(t, string(c.code), members["code"])
					require.EqualValues(t, c.status, members["status"])
					require.NotEmpty(t, members["title"])
					require.Regexp(t, `^[A-Z].*\.$`, members["detail"])
					if c.title != "" {
						require.Equal(t, c.title, members["title"])
					}
					all := fmt.Sprint(a.header, a.body)
					for _, secret := range []string{problemKey, problemScope, problemBody, problemReason, site.server.Addr(), "http:", "onerun:"} {
						require.NotContains(t, strings.ReplaceAll(strings.ReplaceAll(all, want, ""), "urn:onerun:problem:", ""), secret)
					}

					outcome := c.code
					if c.outcome != "" {
						outcome = c.outcome
					}
					o := site.outcome(t)
					require.Equal(t, outcome, o.Result)
					require.Equal(t, c.status, o.Status)
					require.Equal(t, idempotency.KeepNothing, o.Kept)
					require.NotContains(t, fmt.Sprintf("%+v", o), problemKey, "an outcome has no key in it")
				}
			})
			require.Contains(t, string(pages), "\n## "+string(c.code)+"\n", "the page has a place for it")
			require.Contains(t, string(pages), fmt.Sprintf("| [%s](#%s) | %d |", c.code, c.code, c.status))
		})
	}
}

// Row 6: Retry-After is whole seconds, at least one, never later than the option says, nor than
// the lease of the other request ends.
func TestProblem_retryAfter(t *testing.T) {
	t.Parallel()
	store := contentMemory(t) // its leases last 20 seconds
	for _, c := range []struct {
		after    time.Duration
		lowest   int
		highest  int
		leaseTTL time.Duration
	}{
		{after: time.Nanosecond, lowest: 1, highest: 1},
		{after: time.Second, lowest: 1, highest: 1},
		{after: 1001 * time.Millisecond, lowest: 2, highest: 2},
		{after: 2500 * time.Millisecond, lowest: 3, highest: 3},
		{after: time.Hour, lowest: 2, highest: 20},
		{after: time.Hour, lowest: 1, highest: 5, leaseTTL: 5 * time.Second},
	} {
		opts := []guardhttp.Option{idempotency.WithRetryAfter(c.after)}
		if c.leaseTTL > 0 {
			opts = append(opts, idempotency.WithLease(guard.WithTTL(c.leaseTTL)))
		}
		started, finish := make(chan bool), make(chan bool)
		site := store.site(t, contentSetup{opts: opts, handler: func(http.ResponseWriter, *http.Request) {
			close(started)
			<-finish
		}})
		key, ended := rand.Text(), make(chan error)
		go func() {
			_, err := contentSend(t, site.client, http.MethodPost, site.url+"/things", "", contentHeader("Idempotency-Key", key))
			ended <- err
		}()
		<-started
		a := site.post(t, key, "")
		close(finish)
		require.NoError(t, <-ended)
		requireProblem(t, a, http.StatusConflict, idempotency.InFlight)
		seconds, err := strconv.Atoi(a.header.Get("Retry-After"))
		require.NoError(t, err)
		require.GreaterOrEqual(t, seconds, c.lowest, "%v", c.after)
		require.LessOrEqual(t, seconds, c.highest, "%v", c.after)
	}
}

// What the handler has set for an answer that it has not given does not belong to the problem.
func TestProblem_withoutTheHeadersOfTheHandler(t *testing.T) {
	t.Parallel()
	store := contentMemory(t)
	contentProtocols(t, func(t *testing.T, http2 bool) {
		site := store.site(t, contentSetup{http2: http2, opts: []guardhttp.Option{idempotency.WithMaxHold(20 * time.Millisecond)},
			handler: func(w http.ResponseWriter, r *http.Request) {
				h := w.Header()
				h.Set("Content-Encoding", "gzip")
				h.Set("Content-Length", "17")
				h.Set("Etag", `"v1"`)
				h.Set("Set-Cookie", "a=b")
				h.Set("X-Request-Id", "the handler's")
				h.Del("X-Outer")
				<-r.Context().Done()
			},
			mount: headersOuter(func(h http.Header) {
				h.Set("X-Request-Id", "17")
				h.Set("X-Outer", "outer")
			})})
		a := site.post(t, rand.Text(), "")
		requireProblem(t, a, http.StatusServiceUnavailable, "given_up")
		require.EqualValues(t, len(a.body), a.length)
		for _, name := range []string{"Content-Encoding", "Etag", "Set-Cookie"} {
			require.Empty(t, a.header[name], name)
		}
		require.Equal(t, []string{"17"}, a.header["X-Request-Id"])
		require.Equal(t, []string{"outer"}, a.header["X-Outer"])
	})
}

// WithProblems replaces the document, and finds all there is to say.
func TestProblem_ofYourOwn(t *testing.T) {
	t.Parallel()
	store := contentMemory(t)
	for name, c := range problemCases {
		t.Run(name, func(t *testing.T) {
			problems := make(chan guardhttp.Problem, 10)
			setup := c.setup
			if setup.handler == nil {
				setup.handler = contentEcho
			}
			setup.opts = append([]guardhttp.Option{guardhttp.WithDocs("https://docs.example/"),
				guardhttp.WithProblems(func(w http.ResponseWriter, r *http.Request, p guardhttp.Problem) {
					problems <- p
					w.Header().Set("X-Path", r.URL.Path)
					w.Header().Set("Content-Type", "text/plain")
					w.WriteHeader(p.Status)
					fmt.Fprintf(w, "%s: %s", p.Code, p.Title)
				})}, setup.opts...)
			site := store.site(t, setup)
			path := "/" + rand.Text()
			if c.before {
				problemSend(t, site, c, path, problemBody)
				site.outcome(t)
			}
			body := problemBody
			if c.body != "" {
				body = c.body
			}
			a := problemSend(t, site, c, path, body)
			p := <-problems
			require.Equal(t, c.status, a.status)
			require.Equal(t, []string{"text/plain"}, a.header["Content-Type"])
			require.Equal(t, fmt.Sprintf("%s: %s", c.code, p.Title), a.body)
			require.Equal(t, path, a.header.Get("X-Path"))
			require.Empty(t, a.header["Link"])
			require.Equal(t, c.retry != "", a.header.Get("Retry-After") != "", "it is set before")
			require.Equal(t, c.retry != "", p.RetryAfter > 0)
			require.Equal(t, c.code, p.Code)
			require.Equal(t, "urn:onerun:problem:"+string(c.code), p.Type)
			require.NotEmpty(t, p.Detail)
			if o := site.outcome(t); o.Result == c.code {
				require.Equal(t, o.Err, p.Err)
			}
			require.Empty(t, problems)
		})
	}
}

// A Problem is a handler, so that a program can change a part of it.
func TestProblem_changedALittle(t *testing.T) {
	t.Parallel()
	site := contentMemory(t).site(t, contentSetup{handler: contentEcho,
		mount: headersOuter(func(h http.Header) {
			h.Set("Link", "</outer>; rel=outer")
			h.Set("Content-Type", "text/html")
			h.Set("X-Request-Id", "17")
		}),
		opts: []guardhttp.Option{guardhttp.WithProblems(func(w http.ResponseWriter, r *http.Request, p guardhttp.Problem) {
			p.Detail = `Say "please" & <try> again.`
			p.Status = http.StatusTeapot
			p.ServeHTTP(w, r)
		})}})
	a := site.send(t, http.MethodPost, "/things", "")
	require.Equal(t, http.StatusTeapot, a.status)
	var p guardhttp.Problem
	require.NoError(t, json.Unmarshal([]byte(a.body), &p))
	require.Equal(t, `Say "please" & <try> again.`, p.Detail)
	require.Equal(t, http.StatusTeapot, p.Status)
	require.Equal(t, []string{"application/problem+json"}, a.header["Content-Type"])
	require.Equal(t, []string{"</outer>; rel=outer", "<" + problemDocs + `#key_missing>; rel="describedby"; type="text/html"`}, a.header["Link"])
	require.Equal(t, []string{"17"}, a.header["X-Request-Id"])
}
