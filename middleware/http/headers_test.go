package guardhttp_test

import (
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// headersOf serves a handler that sets headers and answers with a body.
func headersOf(set func(h http.Header)) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		set(w.Header())
		_, _ = io.WriteString(w, "the body")
	}
}

// Row 35.
func TestHeaders_areReplayed(t *testing.T) {
	t.Parallel()
	store := contentMemory(t)
	want := http.Header{
		"Link":                  {`<a>; rel="next", <b>; rel="prev"`, `<c>; rel="last"`},
		"Etag":                  {`W/"v1"`},
		"Location":              {"/things/1?a=b#c"},
		"Cache-Control":         {"private, max-age=60"},
		"Content-Type":          {`application/vnd.x+json; charset="utf-8"`},
		"Content-Language":      {"de, en"},
		"Content-Disposition":   {`attachment; filename="a;b.txt"`},
		"Last-Modified":         {"Mon, 02 Jan 2006 15:04:05 GMT"},
		"Vary":                  {"Accept", "Accept-Encoding", "Accept"},
		"Retry-After":           {"120"},
		"Access-Control-Max":    {"10"},
		"Strict-Transport":      {"max-age=1"},
		"X-Empty":               {""},
		"X-Three":               {"", "a", ""},
		"X-Latin":               {"caf\xe9 \u00fc \u2028"},
		"X-Tab":                 {"a\tb"},
		"X-Symbols":             {"\"'\\;:,<>{}()[]?=@!#$%&*+-.^_`|~/"},
		"X-Long":                {strings.Repeat("v", 10_000)},
		"Www-Authenticate-Info": {"no secret"},
		"Set-Cookie-Hint":       {"no cookie"},
	}
	contentProtocols(t, func(t *testing.T, http2 bool) {
		site := store.site(t, contentSetup{http2: http2, handler: headersOf(func(h http.Header) {
			for name, values := range want {
				h[name] = values
			}
			h["x-lower"] = []string{"as it is"}
		})})
		key := rand.Text()
		first := site.post(t, key, "")
		again := site.post(t, key, "")
		again.requireReplayOf(t, first)
		for _, a := range []httpAnswer{first, again} {
			for name, values := range want {
				require.Equal(t, values, a.header[name], name)
			}
			require.Equal(t, []string{"as it is"}, a.header["X-Lower"])
			require.Len(t, a.header["Date"], 1)
		}
		again.header.Del("Idempotency-Replayed")
		first.header["Date"], again.header["Date"] = nil, nil
		require.Equal(t, first.header, again.header, "and there are no others")
	})
}

// Row 35: headers of one connection, those that net/http sets, and secrets.
func TestHeaders_areNotReplayed(t *testing.T) {
	t.Parallel()
	const secret = "the-secret-value"
	store := contentRedis(t)
	never := http.Header{
		"Set-Cookie":                {"a=" + secret, "b=" + secret + "; Path=/"},
		"Set-Cookie2":               {"a=" + secret},
		"Www-Authenticate":          {"Basic realm=" + secret},
		"Authentication-Info":       {"nextnonce=" + secret},
		"Authorization":             {"Bearer " + secret},
		"Proxy-Authentication-Info": {"nextnonce=" + secret},
		"Proxy-Authenticate":        {"Basic realm=" + secret},
		"Proxy-Connection":          {secret},
		"Proxy-Authorization":       {"Basic " + secret},
		"Proxy-Status":              {secret},
		"Cookie":                    {"a=" + secret},
		"Server-Timing":             {"db;desc=" + secret},
		"Dpop-Nonce":                {secret},
		"Replay-Nonce":              {secret},
		"X-Request-Id":              {secret},
		"X-Correlation-Id":          {secret},
		"Traceresponse":             {secret},
		"Ratelimit":                 {secret},
		"X-Ratelimit-Remaining":     {secret},
		"X-Access-Token":            {secret},
		"X-Amz-Security-Token":      {secret},
		"X-Api-Key":                 {secret},
		"X-Auth-Token":              {secret},
		"X-Csrf-Token":              {secret},
		"X-Refresh-Token":           {secret},
		"X-Session-Id":              {secret},
		"X-Session-Token":           {secret},
		"X-Subject-Token":           {secret},
		"X-Vault-Token":             {secret},
		"X-Xsrf-Token":              {secret},
		"Keep-Alive":                {secret},
		"Te":                        {"trailers"},
		"Upgrade":                   {secret},
		"Date":                      {"Mon, 02 Jan 2006 15:04:05 GMT"},
		"Connection":                {"X-Hop, x-hop-two", "X-Hop-Three"},
		"X-Hop":                     {secret},
		"X-Hop-Two":                 {secret},
		"X-Hop-Three":               {secret},
	}
	contentProtocols(t, func(t *testing.T, http2 bool) {
		require.NoError(t, store.rdb.FlushAll(t.Context()).Err())
		site := store.site(t, contentSetup{http2: http2, handler: headersOf(func(h http.Header) {
			for name, values := range never {
				// which HTTP/2 has not
				if !http2 || !slices.Contains([]string{"Connection", "Keep-Alive", "Proxy-Connection", "Upgrade", "Te"}, name) {
					h[name] = values
				}
			}
			if http2 {
				h.Del("X-Hop")
				h.Del("X-Hop-Two")
				h.Del("X-Hop-Three")
			}
			h["set-cookie"] = []string{"lower=" + secret}
			h.Set("X-Kept", "yes")
		})})
		first := site.post(t, "k", "")
		require.Contains(t, first.header["Set-Cookie"], "a="+secret, "the client gets them the first time")
		require.Contains(t, first.header["Set-Cookie"], "lower="+secret)
		require.Equal(t, never["Www-Authenticate"], first.header["Www-Authenticate"])
		again := site.post(t, "k", "")
		again.requireReplayOf(t, first)
		require.Equal(t, "yes", again.header.Get("X-Kept"))
		for name := range never {
			if name != "Date" {
				require.Empty(t, again.header[name], name)
			}
		}
		require.Len(t, again.header["Date"], 1)
		require.NotEqual(t, never.Get("Date"), again.header.Get("Date"))
		_, _, record := store.record(t)
		require.NotContains(t, record, secret, "they are not kept")
		require.Contains(t, record, "the body")
	})
}

// Headers of the application that have secrets are not kept, whatever their letters, and whenever
// the handler sets them. What was kept before the option is not replayed.
func TestHeaders_ofWithoutHeadersAreNotKept(t *testing.T) {
	t.Parallel()
	const secret = "the-secret-value"
	store := contentRedis(t)
	contentProtocols(t, func(t *testing.T, http2 bool) {
		require.NoError(t, store.rdb.FlushAll(t.Context()).Err())
		without := guardhttp.WithoutHeaders("x-acme-secret", "X-ACME-OTP")
		site := func(opts ...guardhttp.Option) *contentSite {
			return store.site(t, contentSetup{http2: http2, opts: opts, handler: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("X-Acme-Secret", secret)
				w.Header()["x-acme-otp"] = []string{secret, secret}
				w.Header().Set("X-Acme", "yes")
				w.WriteHeader(http.StatusCreated)
				w.Header().Set("X-Later", secret) // net/http does not send it
			}})
		}
		with := site(without, guardhttp.WithoutHeaders("X-Later"))
		first := with.post(t, "k", "")
		require.Equal(t, secret, first.header.Get("X-Acme-Secret"), "the first client gets them")
		require.Len(t, first.header["X-Acme-Otp"], 2)
		again := with.post(t, "k", "")
		again.requireReplayOf(t, first)
		require.Equal(t, "yes", again.header.Get("X-Acme"))
		require.NotContains(t, fmt.Sprint(again.header), secret)
		_, _, record := store.record(t)
		require.NotContains(t, record, secret)

		before := site().post(t, "before", "")
		again = with.post(t, "before", "")
		again.requireReplayOf(t, before)
		require.NotContains(t, fmt.Sprint(again.header), secret)
	})
}

// Row 35: a length and a coding are those of the replay.
func TestHeaders_ofTheFraming(t *testing.T) {
	t.Parallel()
	store := contentMemory(t)
	site := store.site(t, contentSetup{handler: func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("chunked") {
			w.Header().Set("Transfer-Encoding", "chunked")
		}
		for range 3 {
			_, _ = io.WriteString(w, strings.Repeat("long ", 1000))
		}
	}})
	for _, path := range []string{"/plain", "/plain?chunked"} {
		for i := range 2 {
			conn := site.dial(t)
			conn.say(t, "POST "+path+" HTTP/1.1", "Host: a", "X-Tenant: acme", "Idempotency-Key: "+path, "Content-Length: 0", "Connection: close", "")
			all, err := io.ReadAll(conn.in)
			require.NoError(t, err)
			head, body, _ := strings.Cut(string(all), "\r\n\r\n")
			require.Equal(t, i > 0, strings.Contains(head, "Content-Length: 15000"), head)
			require.Equal(t, i == 0, strings.Contains(head, "Transfer-Encoding: chunked"), head)
			if i > 0 {
				require.Len(t, body, 15000)
			}
		}
	}
	site.requireRan(t, 2)
	// And for a client of HTTP/1.0, which has no chunks.
	conn := site.dial(t)
	conn.say(t, "POST /plain HTTP/1.0", "X-Tenant: acme", "Idempotency-Key: /plain", "Content-Length: 0", "")
	a := conn.receive(t)
	require.True(t, a.replayed())
	require.Len(t, a.body, 15000)
}

// headersOuter sets headers before the handler is called, as an outer middleware does.
func headersOuter(set func(h http.Header)) func(func(http.Handler) http.Handler, http.Handler) http.Handler {
	return func(idempotent func(http.Handler) http.Handler, h http.Handler) http.Handler {
		inner := idempotent(h)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			set(w.Header())
			inner.ServeHTTP(w, r)
		})
	}
}

// A header that an outer middleware sets is in a replay once, as it is set for the replay.
func TestHeaders_ofAMiddlewareInFront(t *testing.T) {
	t.Parallel()
	store := contentRedis(t)
	contentProtocols(t, func(t *testing.T, http2 bool) {
		require.NoError(t, store.rdb.FlushAll(t.Context()).Err())
		var requests atomic.Int64
		site := store.site(t, contentSetup{http2: http2,
			handler: headersOf(func(h http.Header) {
				h.Set("X-Handler", "own")
				h.Set("X-Both", "the handler's")
				h.Add("X-Added", "the handler's")
				h.Set("X-Equal", "equal")
				h.Del("X-Default")
				h.Del("Content-Type") // to have it sniffed
			}),
			mount: headersOuter(func(h http.Header) {
				n := strconv.FormatInt(requests.Add(1), 10)
				h.Set("X-Request-Id", "request-"+n)
				h.Set("Access-Control-Allow-Origin", "https://"+n+".example")
				h["X-Two"] = []string{"a" + n, "b" + n}
				h.Set("X-Both", "the outer one's")
				h.Set("X-Added", "the outer one's")
				h.Set("X-Equal", "equal")
				h.Set("X-Default", "the outer one's")
				h.Set("Content-Type", "application/json")
			})})
		first := site.post(t, "k", "")
		require.Equal(t, []string{"request-1"}, first.header["X-Request-Id"])
		_, _, record := store.record(t)
		for _, foreign := range []string{"request-1", "https://1.example", "a1"} {
			require.NotContains(t, record, foreign)
		}
		again := site.post(t, "k", "")
		again.requireReplayOf(t, first)
		for name, values := range map[string][]string{
			"X-Request-Id": {"request-2"}, "Access-Control-Allow-Origin": {"https://2.example"}, "X-Two": {"a2", "b2"},
			"X-Handler": {"own"}, "X-Both": {"the handler's"}, "X-Added": {"the outer one's", "the handler's"}, "X-Equal": {"equal"},
			// what the handler has taken away
			"X-Default": nil, "Content-Type": {"text/plain; charset=utf-8"},
		} {
			require.Equal(t, values, again.header[name], name)
		}
		refused := site.post(t, "k", "another body")
		requireProblem(t, refused, 422, idempotency.Mismatch)
		require.Equal(t, []string{"request-3"}, refused.header["X-Request-Id"])
	})
}

func TestHeaders_theMarker(t *testing.T) {
	t.Parallel()
	store := contentMemory(t)
	site := store.site(t, contentSetup{handler: contentEcho})
	require.Empty(t, site.post(t, "k", "b").header["Idempotency-Replayed"])
	require.Equal(t, []string{"true"}, site.post(t, "k", "b").header["Idempotency-Replayed"])

	// A handler behind which another middleware has replayed: its mark is not doubled.
	upstream := store.site(t, contentSetup{handler: headersOf(func(h http.Header) { h.Set("Idempotency-Replayed", "true") })})
	upstream.post(t, "k2", "b")
	require.Equal(t, []string{"true"}, upstream.post(t, "k2", "b").header["Idempotency-Replayed"])
	upstream.requireRan(t, 1)
}
