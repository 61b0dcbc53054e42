package guardhttp_test

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
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
	store := contentRedis(t)
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
	store := contentRedis(t)
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

// A record that another program has written cannot set headers that are never replayed.
func TestHeaders_ofARecordThatIsNotOurs(t *testing.T) {
	t.Parallel()
	store := contentRedis(t)
	for _, name := range []string{"Set-Cookie", "set-cookie", "SET-COOKIE", "Connection", "keep-alive", "Trailer", "transfer-encoding", "Www-Authenticate"} {
		require.NoError(t, store.rdb.FlushAll(t.Context()).Err())
		site := store.site(t, contentSetup{handler: headersOf(func(h http.Header) { h.Set("X-Abcdefgh", "evil") })})
		site.post(t, "k", "")
		key, head, record := store.record(t)
		require.Contains(t, record, "X-Abcdefgh")
		length, size := binary.Uvarint([]byte(record))
		end := size + int(length) // of the head
		json := strings.Replace(record[size:end], "X-Abcdefgh", name, 1)
		forged := string(binary.AppendUvarint(nil, uint64(len(json)))) + json + record[end:len(record)-4]
		forged += string(binary.BigEndian.AppendUint32(nil, crc32.Checksum([]byte(forged), crc32.MakeTable(crc32.Castagnoli))))
		require.NoError(t, store.rdb.Set(t.Context(), key, head+forged, redis.KeepTTL).Err())
		again := site.post(t, "k", "")
		require.Equal(t, 200, again.status)
		require.True(t, again.replayed(), "it is a record all the same")
		require.NotContains(t, fmt.Sprint(again.header, again.trailer), "evil")
		require.NotContains(t, fmt.Sprint(again.trailer), "Evil")
		require.EqualValues(t, len("the body"), again.length)
	}
}

// A replay has the Content-Type that net/http sets if it is missing, and none if the handler has
// suppressed it.
func TestHeaders_contentType(t *testing.T) {
	t.Parallel()
	store := contentRedis(t)
	bodies := map[string]string{
		"html": "<!DOCTYPE html><p>", "text": "only text", "binary": "\x00\x01\x02", "png": "\x89PNG\x0D\x0A\x1A\x0A....", "json": `{"a":1}`,
		"empty": "", "late html": strings.Repeat(" ", 600) + "<html>", "long": strings.Repeat("text ", 2000), "utf-16": "\xfe\xff\x00a",
	}
	contentProtocols(t, func(t *testing.T, http2 bool) {
		for name, body := range bodies {
			for how, set := range map[string]func(h http.Header){
				"sniffed":    func(http.Header) {},
				"suppressed": func(h http.Header) { h["Content-Type"] = nil },
				"empty":      func(h http.Header) { h.Set("Content-Type", "") },
				"own":        func(h http.Header) { h.Set("Content-Type", "a/b") },
				"encoded":    func(h http.Header) { h.Set("Content-Encoding", "br") },
			} {
				site := store.site(t, contentSetup{http2: http2, handler: func(w http.ResponseWriter, _ *http.Request) {
					set(w.Header())
					for rest := body; rest != ""; { // in small parts
						n := min(100, len(rest))
						_, _ = io.WriteString(w, rest[:n])
						rest = rest[n:]
					}
				}})
				key := rand.Text()
				first := site.post(t, key, "")
				again := site.post(t, key, "")
				again.requireReplayOf(t, first)
				require.Equal(t, first.header["Content-Type"], again.header["Content-Type"], "%s, %s", name, how)
				if how == "suppressed" {
					require.NotContains(t, again.header, "Content-Type")
				}
			}
		}
	})
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
			}),
			mount: headersOuter(func(h http.Header) {
				n := strconv.FormatInt(requests.Add(1), 10)
				h.Set("X-Request-Id", "request-"+n)
				h.Set("Access-Control-Allow-Origin", "https://"+n+".example")
				h["X-Two"] = []string{"a" + n, "b" + n}
				h.Set("X-Both", "the outer one's")
				h.Set("X-Added", "the outer one's")
				h.Set("X-Equal", "equal")
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
		} {
			require.Equal(t, values, again.header[name], name)
		}
		refused := site.post(t, "k", "another body")
		requireProblem(t, refused, 422, idempotency.Mismatch)
		require.Equal(t, []string{"request-3"}, refused.header["X-Request-Id"])
	})
}

// What the handler takes away of that is away in a replay, too.
func TestHeaders_thatTheHandlerTakesAway(t *testing.T) {
	t.Parallel()
	site := contentRedis(t).site(t, contentSetup{
		handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Del("Content-Type") // to have it sniffed
			w.Header().Del("X-Default")
			_, _ = io.WriteString(w, "\x89PNG\x0D\x0A\x1A\x0A....")
		},
		mount: headersOuter(func(h http.Header) {
			h.Set("Content-Type", "application/json")
			h.Set("X-Default", "the outer one's")
		})})
	first := site.post(t, "k", "")
	require.Equal(t, "image/png", first.header.Get("Content-Type"))
	require.Empty(t, first.header["X-Default"])
	again := site.post(t, "k", "")
	require.Equal(t, first.body, again.body)
	require.Equal(t, "image/png", again.header.Get("Content-Type"))
	require.Empty(t, again.header["X-Default"])
}

// A middleware in front that sets headers when the answer begins does so in a replay as well.
func TestHeaders_ofAWriterInFront(t *testing.T) {
	t.Parallel()
	site := contentRedis(t).site(t, contentSetup{handler: headersOf(func(h http.Header) { h.Set("X-Handler", "own") }),
		mount: func(idempotent func(http.Handler) http.Handler, h http.Handler) http.Handler {
			inner := idempotent(h)
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				inner.ServeHTTP(&headersLate{ResponseWriter: w, value: r.Header.Get("X-Late")}, r)
			})
		}})
	first := site.post(t, "k", "", contentHeader("X-Late", "one"))
	require.Equal(t, []string{"one"}, first.header["X-Late"])
	again := site.post(t, "k", "", contentHeader("X-Late", "two"))
	again.requireReplayOf(t, first)
	require.Equal(t, []string{"two"}, again.header["X-Late"])
	require.Equal(t, []string{"own"}, again.header["X-Handler"])
}

// headersLate sets a header when the answer begins.
type headersLate struct {
	http.ResponseWriter
	value string
	begun bool
}

func (w *headersLate) WriteHeader(status int) {
	w.begun = true
	w.Header().Add("X-Late", w.value)
	w.ResponseWriter.WriteHeader(status)
}

func (w *headersLate) Write(p []byte) (int, error) {
	if !w.begun {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(p)
}

// The first status counts, and the headers that stood there then.
func TestHeaders_areThoseOfTheFirstStatus(t *testing.T) {
	t.Parallel()
	store := contentRedis(t)
	contentProtocols(t, func(t *testing.T, http2 bool) {
		for name, answer := range map[string]func(w http.ResponseWriter){
			"two statuses": func(w http.ResponseWriter) {
				w.Header().Set("X-When", "before")
				w.WriteHeader(http.StatusAccepted)
				w.Header().Set("X-When", "after")
				w.Header().Set("X-Late", "after")
				w.WriteHeader(http.StatusInternalServerError)
			},
			"body first": func(w http.ResponseWriter) {
				w.Header().Set("X-When", "before")
				w.WriteHeader(http.StatusAccepted)
				_, _ = io.WriteString(w, "body")
				w.Header().Set("X-When", "after")
				w.Header().Set("X-Late", "after")
				w.WriteHeader(http.StatusInternalServerError)
			},
		} {
			site := store.site(t, contentSetup{http2: http2, handler: func(w http.ResponseWriter, _ *http.Request) { answer(w) }})
			key := rand.Text()
			first := site.post(t, key, "")
			again := site.post(t, key, "")
			again.requireReplayOf(t, first)
			for _, a := range []httpAnswer{first, again} {
				require.Equal(t, http.StatusAccepted, a.status, name)
				require.Equal(t, []string{"before"}, a.header["X-When"])
				require.Empty(t, a.header["X-Late"])
			}
			require.Equal(t, http.StatusAccepted, site.outcome(t).Status)
			if !http2 {
				require.Contains(t, site.log.String(), "superfluous", "and the handler's mistake is logged, as without us")
			}
		}
	})
}

// The first status also counts if the answer is a single byte of an announced length.
func TestHeaders_areThoseOfTheFirstStatusOfOneByte(t *testing.T) {
	t.Parallel()
	store := contentRedis(t)
	contentProtocols(t, func(t *testing.T, http2 bool) {
		site := store.site(t, contentSetup{http2: http2, handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1")
			w.Header().Set("X-When", "before")
			_, _ = io.WriteString(w, "1")
			w.Header().Set("X-When", "after")
			w.WriteHeader(http.StatusInternalServerError)
		}})
		key := rand.Text()
		first := site.post(t, key, "")
		require.Equal(t, http.StatusOK, first.status)
		require.Equal(t, "1", first.body)
		require.Equal(t, []string{"before"}, first.header["X-When"])
		site.post(t, key, "").requireReplayOf(t, first)
	})
}

// Informational answers are passed on at once, and are no part of the record.
func TestHeaders_earlyHints(t *testing.T) {
	t.Parallel()
	store := contentRedis(t)
	contentProtocols(t, func(t *testing.T, http2 bool) {
		var hinted chan bool
		site := store.site(t, contentSetup{http2: http2, handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Link", "</style.css>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
			<-hinted // the client has it
			w.WriteHeader(http.StatusProcessing)
			w.Header().Set("X-Final", "yes")
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, "the body")
		}})
		key := rand.Text()
		var first httpAnswer
		for i := range 2 {
			hinted = make(chan bool)
			var informational []int
			a := site.post(t, key, "", func(r *http.Request) {
				*r = *r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
					Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
						informational = append(informational, code)
						if code == http.StatusEarlyHints {
							if header.Get("Link") == "" || header.Get("X-Final") != "" {
								panic(header)
							}
							close(hinted)
						}
						return nil
					}}))
			})
			require.Equal(t, http.StatusCreated, a.status)
			require.Equal(t, "yes", a.header.Get("X-Final"))
			require.Equal(t, []string{"</style.css>; rel=preload"}, a.header["Link"])
			if i == 0 {
				require.Equal(t, []int{103, 102}, informational)
				first = a
				continue
			}
			require.Empty(t, informational)
			a.requireReplayOf(t, first)
		}
		site.requireRan(t, 1)
	})
}

// An answer with more headers than a record may hold is not recorded, and reaches the client
// whole.
func TestHeaders_atTheirBounds(t *testing.T) {
	t.Parallel()
	site := contentRedis(t).site(t, contentSetup{handler: func(w http.ResponseWriter, r *http.Request) {
		names, _ := strconv.Atoi(r.URL.Query().Get("names"))
		lines, _ := strconv.Atoi(r.URL.Query().Get("lines"))
		size, _ := strconv.Atoi(r.URL.Query().Get("bytes"))
		for i := range names {
			w.Header().Set(fmt.Sprint("X-", i), "v")
		}
		for range lines {
			w.Header().Add("X-Line", "v")
		}
		if size > 0 {
			w.Header().Set("X-Size", strings.Repeat("v", size-len("X-Size")))
		}
	}})
	for query, kept := range map[string]bool{
		"names=256": true, "names=257": false, "lines=1024": true, "lines=1025": false, "bytes=65536": true, "bytes=65537": false,
	} {
		path, key := "/bounds?"+query, contentHeader("Idempotency-Key", query)
		first := site.send(t, http.MethodPost, path, "", key)
		require.Equal(t, 200, first.status)
		require.Equal(t, map[bool]idempotency.Keep{true: idempotency.KeepAnswer, false: idempotency.KeepTombstone}[kept], site.outcome(t).Kept, query)
		again := site.send(t, http.MethodPost, path, "", key)
		require.NoError(t, site.outcome(t).Err, "the record can be read")
		if !kept {
			requireProblem(t, again, http.StatusConflict, idempotency.NotReplayable)
			continue
		}
		again.requireReplayOf(t, first)
		again.header.Del("Idempotency-Replayed")
		first.header["Date"], again.header["Date"] = nil, nil
		require.Equal(t, first.header, again.header)
	}
	site.requireRan(t, 6)
}

// A header that net/http does not send as it was set is not replayed as something else.
func TestHeaders_thatAreNone(t *testing.T) {
	t.Parallel()
	store := contentRedis(t)
	contentProtocols(t, func(t *testing.T, http2 bool) {
		for what, set := range map[string]func(h http.Header){
			"a value with a line break":  func(h http.Header) { h.Set("X-Bad", "a\r\nX-Injected: b") },
			"a value with a control":     func(h http.Header) { h.Set("X-Bad", "a\x00b") },
			"a name with a space":        func(h http.Header) { h["X Bad"] = []string{"b"} },
			"a name with a line break":   func(h http.Header) { h["X-Bad\r\nX-Injected"] = []string{"b"} },
			"an empty name":              func(h http.Header) { h[""] = []string{"b"} },
			"a value with a tab before":  func(h http.Header) { h.Set("X-Bad", "\ta") },
			"a value with spaces behind": func(h http.Header) { h.Set("X-Bad", "a  ") },
		} {
			site := store.site(t, contentSetup{http2: http2, handler: headersOf(set)})
			key := rand.Text()
			first, err := site.try(t, http.MethodPost, "/things", "", contentHeader("Idempotency-Key", key))
			if err != nil {
				require.Equal(t, "a value with a control", what, "which the client does not understand: %v", err)
				require.False(t, http2)
			}
			require.NotContains(t, first.header, "X-Injected")
			again := site.post(t, key, "")
			require.NoError(t, site.outcome(t).Err, "%s: the record can be read", what)
			if again.status == http.StatusConflict {
				requireProblem(t, again, http.StatusConflict, idempotency.NotReplayable)
				continue
			}
			again.requireReplayOf(t, first)
			again.header.Del("Idempotency-Replayed")
			first.header["Date"], again.header["Date"] = nil, nil
			require.Equal(t, first.header, again.header, what)
		}
	})
}

func TestHeaders_theMarker(t *testing.T) {
	t.Parallel()
	store := contentRedis(t)
	site := store.site(t, contentSetup{handler: contentEcho})
	require.Empty(t, site.post(t, "k", "b").header["Idempotency-Replayed"])
	require.Equal(t, []string{"true"}, site.post(t, "k", "b").header["Idempotency-Replayed"])

	// A handler behind which another middleware has replayed: its mark is not doubled.
	upstream := store.site(t, contentSetup{handler: headersOf(func(h http.Header) { h.Set("Idempotency-Replayed", "true") })})
	upstream.post(t, "k2", "b")
	require.Equal(t, []string{"true"}, upstream.post(t, "k2", "b").header["Idempotency-Replayed"])
	upstream.requireRan(t, 1)
}

// A length that the handler has announced and not kept is its mistake: the client sees what it
// would see without us, and it is never replayed as if it were whole.
func TestHeaders_lengthsThatAreWrong(t *testing.T) {
	t.Parallel()
	store := contentRedis(t)
	writes := map[string][]string{
		"nothing": {}, "too little": {"123"}, "in parts, too little": {"1", "2", "3"}, "exactly": {"12345"}, "in parts, exactly": {"12", "345"},
		"too much": {"1234567"}, "in parts, too much": {"123", "4567"}, "exactly, and more": {"12345", "6"}, "too much, and what would fit": {"123", "4567", "45"},
		"too much at once, and what would fit": {"1234567", "12345"}, "an empty part at the end": {"12345", ""}, "large": {strings.Repeat("1", 5000)},
	}
	contentProtocols(t, func(t *testing.T, http2 bool) {
		for name, parts := range writes {
			for _, length := range []string{"5", "0", "x", "-5", "5, 5"} {
				if http2 && strings.Contains(name, "too much, ") {
					continue // see TestStreams_tooMuchOverHTTP2
				}
				said := make(chan string, 1)
				handler := func(w http.ResponseWriter, _ *http.Request) {
					var errs []string
					w.Header().Set("Content-Length", length)
					for _, p := range parts {
						n, err := io.WriteString(w, p)
						errs = append(errs, fmt.Sprint(n, err))
					}
					said <- strings.Join(errs, ", ")
				}
				what := fmt.Sprintf("%s of %q", name, length)
				address, client := contentServer(t, http.HandlerFunc(handler), http2, io.Discard)
				bare, bareErr := contentSend(t, client, http.MethodPost, address+"/", "")
				bareSaid := <-said

				site := store.site(t, contentSetup{http2: http2, handler: handler})
				key := rand.Text()
				first, err := site.try(t, http.MethodPost, "/things", "", contentHeader("Idempotency-Key", key))
				if !http2 {
					require.Equal(t, bareSaid, <-said, "%s: the results of the handler's calls", what)
				} else {
					<-said
				}
				require.Equal(t, bareErr == nil, err == nil, "%s: %v %v", what, bareErr, err)
				require.Equal(t, bare.status, first.status, what)
				require.Equal(t, bare.length, first.length, what)
				whole := err == nil && first.err == nil
				if !http2 || bare.err == nil {
					require.Equal(t, bare.body, first.body, what)
					require.Equal(t, bare.err == nil, first.err == nil, "%s: %v %v", what, bare.err, first.err)
				}
				// the middleware has returned, maybe after the client had its answer
				site.outcome(t)
				again := site.post(t, key, "")
				if again.replayed() {
					require.True(t, whole, "%s: %q is replayed, and the client got %q, %v", what, again.body, first.body, first.err)
					again.requireReplayOf(t, first)
				} else {
					requireProblem(t, again, http.StatusConflict, idempotency.NotReplayable)
				}
				site.requireRan(t, 1)
			}
		}
	})
}
