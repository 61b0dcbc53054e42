package guardhttp_test

import (
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// Row 28.
func TestContent_bodiesAtTheCap(t *testing.T) {
	t.Parallel()
	const most = 1000
	contentProtocols(t, func(t *testing.T, http2 bool) {
		t.Parallel()
		store := contentRedis(t)
		site := store.site(t, contentSetup{http2: http2, handler: contentEcho, opts: []guardhttp.Option{guardhttp.WithMaxBody(most)}})
		for how, edit := range map[string]contentEdit{"length": func(*http.Request) {}, "chunked": contentChunked} {
			for _, size := range []int{0, 1, most - 1, most} {
				body := strings.Repeat("b", size)
				key := fmt.Sprint(how, size)
				first := site.post(t, key, body, edit)
				require.Equal(t, http.StatusOK, first.status)
				require.Equal(t, body, first.body)
				site.post(t, key, body, edit).requireReplayOf(t, first)
			}
			ran, leases := site.ran.Load(), len(site.leases(t))
			for _, size := range []int{most + 1, 2 * most, 100 * most} {
				a := site.post(t, fmt.Sprint(how, size), strings.Repeat("b", size), edit)
				requireProblem(t, a, http.StatusRequestEntityTooLarge, idempotency.BodyTooLarge)
				o := site.outcome(t)
				require.Equal(t, idempotency.BodyTooLarge, o.Result)
				var large *http.MaxBytesError
				require.ErrorAs(t, o.Err, &large)
				require.EqualValues(t, most, large.Limit)
			}
			site.requireRan(t, int(ran))
			require.Len(t, site.leases(t), leases, "nothing was left")
		}
	})
}

// Row 28: what is announced to be too large is not waited for.
func TestContent_announcedBodyThatIsTooLarge(t *testing.T) {
	t.Parallel()
	site := contentRedis(t).site(t, contentSetup{handler: contentEcho, opts: []guardhttp.Option{guardhttp.WithMaxBody(10)}})
	conn := site.dial(t)
	conn.say(t, "POST /things HTTP/1.1", "Host: a", "X-Tenant: acme", "Idempotency-Key: k", "Content-Length: 11", "Expect: 100-continue", "")
	a := conn.receive(t) // without a byte of the body, and without a 100 Continue
	requireProblem(t, a, http.StatusRequestEntityTooLarge, idempotency.BodyTooLarge)
	require.True(t, a.close)
	site.requireRan(t, 0)
	require.Empty(t, site.leases(t))

	none := contentRedis(t).site(t, contentSetup{handler: contentEcho, opts: []guardhttp.Option{guardhttp.WithMaxBody(0)}})
	require.Equal(t, http.StatusOK, none.post(t, "k", "").status)
	requireProblem(t, none.post(t, "k2", "b"), http.StatusRequestEntityTooLarge, idempotency.BodyTooLarge)
}

// Row 28: without anything that needs the body there is no cap, and the body is left to the
// handler.
func TestContent_noCapIfTheBodyIsNotNeeded(t *testing.T) {
	t.Parallel()
	site := contentMemory(t).site(t, contentSetup{handler: contentEcho,
		opts: []guardhttp.Option{guardhttp.WithMaxBody(10), guardhttp.WithFingerprint(nil)}})
	body := strings.Repeat("b", 5000)
	first := site.post(t, "k", body, contentChunked)
	require.Equal(t, body, first.body)
	site.post(t, "k", "anything", contentChunked).requireReplayOf(t, first)
	site.requireRan(t, 1)
}

// Row 29.
func TestContent_theHandlerSeesTheWholeRequest(t *testing.T) {
	t.Parallel()
	store := contentRedis(t)
	fromBody := func(r *http.Request) (string, error) { // a KeyFunc that reads as it likes
		all, err := io.ReadAll(r.Body)
		_ = r.Body.Close()
		return fmt.Sprintf("%.5s", all), err
	}
	halfRead := func(r *http.Request) (string, error) {
		var b [3]byte
		_, err := io.ReadFull(r.Body, b[:])
		return string(b[:]), err
	}
	body := "the body " + strings.Repeat("is long ", 1000)
	for i := range 256 {
		body += string([]byte{byte(i)})
	}
	for name, setup := range map[string]contentSetup{
		"fingerprint":             {},
		"no fingerprint":          {opts: []guardhttp.Option{guardhttp.WithFingerprint(nil)}},
		"waiting":                 {opts: []guardhttp.Option{guardhttp.WithFingerprint(nil), idempotency.WithWait(time.Second)}},
		"key from the body":       {key: fromBody},
		"key from half of it":     {key: halfRead},
		"key only from the body":  {key: fromBody, opts: []guardhttp.Option{guardhttp.WithFingerprint(nil)}},
		"key only from half":      {key: halfRead, opts: []guardhttp.Option{guardhttp.WithFingerprint(nil)}},
		"optional key":            {key: func(*http.Request) (string, error) { return "", nil }, opts: []guardhttp.Option{idempotency.WithOptionalKey()}},
		"optional key, body read": {key: func(r *http.Request) (string, error) { _, err := halfRead(r); return "", err }, opts: []guardhttp.Option{idempotency.WithOptionalKey()}},
	} {
		t.Run(name, func(t *testing.T) {
			type seen struct {
				body   string
				length int64
				after  error
				closed error
			}
			requests := make(chan seen, 1)
			setup.handler = func(_ http.ResponseWriter, r *http.Request) {
				var s seen
				s.length = r.ContentLength
				all, err := io.ReadAll(r.Body)
				if err != nil {
					panic(err)
				}
				s.body = string(all)
				_, s.after = r.Body.Read(make([]byte, 1))
				s.closed = r.Body.Close()
				requests <- s
			}
			contentProtocols(t, func(t *testing.T, http2 bool) {
				setup.http2 = http2
				for _, edit := range []contentEdit{func(*http.Request) {}, contentChunked} {
					store = contentMemory(t)
					require.Equal(t, http.StatusOK, store.site(t, setup).post(t, "k", body, edit).status)
					s := <-requests
					require.Equal(t, body, s.body)
					require.Equal(t, io.EOF, s.after)
					require.NoError(t, s.closed)
					length := int64(len(body))
					// the length is unknown if nothing has read the body
					if strings.HasPrefix(name, "no fingerprint") || name == "optional key" {
						require.Contains(t, []int64{length, -1}, s.length)
					} else {
						require.Equal(t, length, s.length)
					}
				}
			})
		})
	}
}

// A request whose body breaks off has not come: nothing runs, and nothing is left.
func TestContent_bodiesThatBreakOff(t *testing.T) {
	t.Parallel()
	store := contentRedis(t)
	for name, rest := range map[string][]string{
		"shorter than announced": {"Content-Length: 10", "", "12345"},
		// no memory is allocated for the announced length
		"far shorter":           {"Content-Length: 274877906944", "", "12345"},
		"chunk that ends early": {"Transfer-Encoding: chunked", "", "5", "abc"},
		"no last chunk":         {"Transfer-Encoding: chunked", "", "3", "abc", "2", "de"},
		"chunk of a wrong size": {"Transfer-Encoding: chunked", "", "zz", "abc", "0", ""},
	} {
		t.Run(name, func(t *testing.T) {
			site := store.site(t, contentSetup{handler: contentEcho, opts: []guardhttp.Option{guardhttp.WithMaxBody(1 << 40)}})
			conn := site.dial(t)
			conn.say(t, append([]string{"POST /things HTTP/1.1", "Host: a", "X-Tenant: acme", "Idempotency-Key: k"}, rest...)...)
			require.NoError(t, conn.Conn.(*net.TCPConn).CloseWrite())
			if a, err := contentReceive(conn.in); err == nil { // or the connection was closed
				require.Equal(t, http.StatusBadRequest, a.status)
			}
			o := site.outcome(t)
			require.Equal(t, idempotency.BodyInvalid, o.Result)
			require.Error(t, o.Err)
			site.requireRan(t, 0)
			require.Empty(t, site.leases(t))
		})
	}
}

func TestContent_expectContinue(t *testing.T) {
	t.Parallel()
	store := contentMemory(t)
	head := []string{"POST /things HTTP/1.1", "Host: a", "X-Tenant: acme", "Content-Length: 4", "Expect: 100-continue"}
	t.Run("is answered when the body is read", func(t *testing.T) {
		site := store.site(t, contentSetup{handler: contentEcho})
		for range 2 {
			conn := site.dial(t)
			conn.say(t, append(head, "Idempotency-Key: k", "")...)
			require.Equal(t, http.StatusContinue, conn.receive(t).status)
			_, err := io.WriteString(conn, "body")
			require.NoError(t, err)
			a := conn.receive(t)
			require.Equal(t, 200, a.status)
			require.Equal(t, "body", a.body)
		}
		site.requireRan(t, 1)
	})
	t.Run("is not answered if the request is refused for its header", func(t *testing.T) {
		site := store.site(t, contentSetup{handler: contentEcho})
		for _, line := range []string{"X-No: key", `Idempotency-Key: "`} {
			conn := site.dial(t)
			conn.say(t, append(head, line, "")...)
			require.Equal(t, http.StatusBadRequest, conn.receive(t).status)
		}
		conn := site.dial(t)
		conn.say(t, "POST /things HTTP/1.1", "Host: a", "Idempotency-Key: k", "Content-Length: 4", "Expect: 100-continue", "")
		require.Equal(t, http.StatusInternalServerError, conn.receive(t).status, "no scope")
		site.requireRan(t, 0)
	})
	t.Run("is not answered if the body is not needed", func(t *testing.T) {
		site := store.site(t, contentSetup{handler: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) },
			opts: []guardhttp.Option{guardhttp.WithFingerprint(nil)}})
		for range 2 {
			conn := site.dial(t)
			conn.say(t, append(head, "Idempotency-Key: k2", "")...)
			require.Equal(t, http.StatusAccepted, conn.receive(t).status)
		}
		site.requireRan(t, 1)
	})
}

// The handler finds the trailers of a chunked request once it has read the body, as without us.
func TestContent_requestsWithTrailers(t *testing.T) {
	t.Parallel()
	store := contentMemory(t)
	for name, announced := range map[string]string{"announced": "Trailer: X-Sum", "not announced": "X-Other: none"} {
		for how, opts := range map[string][]guardhttp.Option{"fingerprint": nil, "no fingerprint": {guardhttp.WithFingerprint(nil)}} {
			t.Run(name+", "+how, func(t *testing.T) {
				handler := func(w http.ResponseWriter, r *http.Request) {
					all, _ := io.ReadAll(r.Body)
					fmt.Fprintf(w, "%s %s", all, r.Trailer.Get("X-Sum"))
				}
				site := store.site(t, contentSetup{opts: opts, handler: handler})
				bare, _ := contentServer(t, http.HandlerFunc(handler), false, io.Discard)
				for i, conn := range []*contentConn{contentDial(t, bare), site.dial(t), site.dial(t)} {
					conn.say(t, "POST /things HTTP/1.1", "Host: a", "X-Tenant: acme", "Idempotency-Key: "+strings.ReplaceAll(t.Name(), "/", "."),
						"Transfer-Encoding: chunked", announced, "", "4", "body", "0", "X-Sum: 17", "")
					require.Equal(t, "body 17", conn.receive(t).body, []string{"without us", "first", "retry"}[i])
				}
				site.requireRan(t, 1)
			})
		}
	}
}

// A handler that parses a form with large files leaves none of them behind, as without us:
// net/http removes them.
func TestContent_filesOfAFormAreRemoved(t *testing.T) {
	store := contentMemory(t)
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	large := strings.Repeat("x", 1<<18)
	form := "--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f\"\r\n\r\n" + large + "\r\n--b--\r\n"
	parse := func(r *http.Request) int64 {
		if err := r.ParseMultipartForm(1); err != nil {
			panic(err)
		}
		return r.MultipartForm.File["f"][0].Size
	}
	for name, setup := range map[string]contentSetup{
		"without us":     {mount: func(_ func(http.Handler) http.Handler, h http.Handler) http.Handler { return h }},
		"in the handler": {},
		"in the KeyFunc": {key: func(r *http.Request) (string, error) { return fmt.Sprint(parse(r)), nil }},
		"without a key":  {opts: []guardhttp.Option{idempotency.WithOptionalKey()}},
	} {
		t.Run(name, func(t *testing.T) {
			setup.handler = func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprint(w, parse(r))
				files, err := filepath.Glob(filepath.Join(dir, "multipart-*"))
				if err != nil || len(files) == 0 {
					panic("the form was to be in a file")
				}
			}
			site := store.site(t, setup)
			edits := []contentEdit{contentHeader("Content-Type", "multipart/form-data; boundary=b")}
			if name != "without a key" {
				edits = append(edits, contentHeader("Idempotency-Key", "k"))
			}
			a := site.send(t, http.MethodPost, "/"+url.PathEscape(name), form, edits...)
			require.Equal(t, strconv.Itoa(len(large)), a.body)
			require.Eventually(t, func() bool {
				files, err := filepath.Glob(filepath.Join(dir, "multipart-*"))
				return err == nil && len(files) == 0
			}, 5*time.Second, time.Millisecond, "the files of the form are left")
		})
	}
}

// Those in front find the pattern that a mux behind us has matched, as they do without us.
func TestContent_thePatternIsSeenInFront(t *testing.T) {
	t.Parallel()
	store := contentMemory(t)
	for name, opts := range map[string][]guardhttp.Option{
		"run": nil, "no fingerprint": {guardhttp.WithFingerprint(nil)}, "shadow": {idempotency.WithShadow()}, "optional": {idempotency.WithOptionalKey()},
	} {
		t.Run(name, func(t *testing.T) {
			patterns := make(chan string, 1)
			site := store.site(t, contentSetup{opts: opts, handler: contentEcho,
				mount: func(idempotent func(http.Handler) http.Handler, h http.Handler) http.Handler {
					mux := http.NewServeMux()
					mux.Handle("POST /things/{id}", h)
					inner := idempotent(mux)
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						inner.ServeHTTP(w, r)
						patterns <- r.Pattern
					})
				}})
			var edits []contentEdit
			if name != "optional" {
				edits = append(edits, contentHeader("Idempotency-Key", rand.Text()))
			}
			require.Equal(t, "b", site.send(t, http.MethodPost, "/things/17", "b", edits...).body)
			require.Equal(t, "POST /things/{id}", <-patterns)
		})
	}
}
