package guardhttp_test

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// Row 1: answers and parts of many sizes, with and without an announced length.
func TestContent_answersOfManySizes(t *testing.T) {
	t.Parallel()
	store := contentRedis(t)
	contentProtocols(t, func(t *testing.T, http2 bool) {
		site := store.site(t, contentSetup{http2: http2, handler: func(w http.ResponseWriter, r *http.Request) {
			q := r.URL.Query()
			size, _ := strconv.Atoi(q.Get("size"))
			part, _ := strconv.Atoi(q.Get("part"))
			if q.Get("length") != "" {
				w.Header().Set("Content-Length", q.Get("size"))
			}
			all := bytes.Repeat([]byte("0123456789abcde\n"), size/16+1)[:size]
			for len(all) > 0 {
				n := min(part, len(all))
				_, _ = w.Write(all[:n])
				all = all[n:]
			}
		}})
		for _, size := range []int{0, 1, 2, 511, 512, 513, 2047, 2048, 2049, 4096, 70_000} {
			for _, part := range []int{1, 1000, 1 << 20} {
				if part == 1 && size > 4096 {
					continue
				}
				for _, length := range []string{"", "&length=known"} {
					path := fmt.Sprintf("/sized?size=%d&part=%d%s", size, part, length)
					key := contentHeader("Idempotency-Key", rand.Text())
					first := site.send(t, http.MethodPost, path, "", key)
					require.NoError(t, first.err)
					require.Len(t, first.body, size)
					site.send(t, http.MethodPost, path, "", key).requireReplayOf(t, first)
				}
			}
		}
	})
}

// Rows 36 and 29: bodies are bytes, both ways.
func TestContent_everyByte(t *testing.T) {
	t.Parallel()
	store := contentRedis(t)
	random := make([]byte, 100_000)
	_, _ = rand.Read(random)
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	contentProtocols(t, func(t *testing.T, http2 bool) {
		site := store.site(t, contentSetup{http2: http2, handler: contentEcho})
		for name, body := range map[string]string{"every value": string(all), "backwards": string(all[128:]) + string(all[:128]), "random": string(random)} {
			for how, edit := range map[string]contentEdit{"with its length": func(*http.Request) {}, "chunked": contentChunked} {
				key := rand.Text()
				first := site.post(t, key, body, edit)
				require.Equal(t, body, first.body, "%s, %s", name, how)
				site.post(t, key, body, edit).requireReplayOf(t, first)
				site.post(t, key, body).requireReplayOf(t, first) // however it is framed
			}
		}
	})
}

// Rows 5 and 15.
func TestContent_anotherBodyIsRefusedAndLeavesTheRecord(t *testing.T) {
	t.Parallel()
	contentProtocols(t, func(t *testing.T, http2 bool) {
		t.Parallel()
		site := contentRedis(t).site(t, contentSetup{http2: http2, handler: contentEcho})
		first := site.post(t, "k", "body1")
		key, head, record := site.record(t)
		left := site.rdb.PTTL(t.Context(), key).Val()
		require.Greater(t, left, 24*time.Hour-time.Minute)
		for _, other := range []string{"body2", "", "body1 ", "body", "body1\x00", strings.Repeat("body1", 1000)} {
			again := site.post(t, "k", other)
			requireProblem(t, again, http.StatusUnprocessableEntity, idempotency.Mismatch)
			require.NotContains(t, again.body, "body1", "the first answer does not show")
			require.Equal(t, idempotency.Mismatch, site.outcome(t).Result)
		}
		requireProblem(t, site.send(t, http.MethodPost, "/things?q", "body1", contentHeader("Idempotency-Key", "k")), http.StatusUnprocessableEntity, idempotency.Mismatch)
		key2, head2, record2 := site.record(t)
		require.Equal(t, [3]string{key, head, record}, [3]string{key2, head2, record2}, "the owner's record is as it was")
		require.LessOrEqual(t, site.rdb.PTTL(t.Context(), key).Val(), left, "and ends when it did")
		site.post(t, "k", "body1").requireReplayOf(t, first)
		site.requireRan(t, 1)
	})
}

// Rows 6 and 15.
func TestContent_whileTheFirstRuns(t *testing.T) {
	t.Parallel()
	contentProtocols(t, func(t *testing.T, http2 bool) {
		t.Parallel()
		started, finish := make(chan bool), make(chan bool)
		site := contentRedis(t).site(t, contentSetup{http2: http2, handler: func(w http.ResponseWriter, r *http.Request) {
			close(started)
			<-finish
			contentEcho(w, r)
		}})
		answers := make(chan httpAnswer, 1)
		go func() {
			a, err := contentSend(t, site.client, http.MethodPost, site.url+"/things", "one", contentHeader("Idempotency-Key", "k"))
			a.err = errors.Join(a.err, err)
			answers <- a
		}()
		<-started
		before := site.leases(t)
		for _, body := range []string{"one", "two"} {
			a := site.post(t, "k", body)
			requireProblem(t, a, http.StatusConflict, idempotency.InFlight)
			seconds, err := strconv.Atoi(a.header.Get("Retry-After"))
			require.NoError(t, err)
			require.Equal(t, 1, seconds)
			require.Equal(t, idempotency.InFlight, site.outcome(t).Result)
		}
		require.Equal(t, before, site.leases(t), "the owner's lease is as it was")
		site.requireRan(t, 1)
		close(finish)
		first := <-answers
		require.NoError(t, first.err)
		require.Equal(t, "one", first.body)
		site.sent++ // the first one
		site.post(t, "k", "one").requireReplayOf(t, first)
		requireProblem(t, site.post(t, "k", "two"), http.StatusUnprocessableEntity, idempotency.Mismatch)
		site.requireRan(t, 1)
	})
}

// Row 21: an error that the handler has answered can be distinguished from one of ours.
func TestContent_errorsOfTheHandlerAreReplayed(t *testing.T) {
	t.Parallel()
	site := contentRedis(t).site(t, contentSetup{handler: func(w http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(r.URL.Query().Get("status"))
		w.Header().Set("Content-Type", "application/problem+json")
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"type":"about:blank","status":%d}`, status)
	}})
	for _, status := range []int{400, 404, 405, 409, 410, 412, 413, 415, 418, 422, 451} {
		key, path := contentHeader("Idempotency-Key", fmt.Sprint("k", status)), fmt.Sprint("/e?status=", status)
		first := site.send(t, http.MethodPost, path, "", key)
		again := site.send(t, http.MethodPost, path, "", key)
		again.requireReplayOf(t, first)
		require.Equal(t, status, again.status)
		require.NotContains(t, again.body, `"code"`)
		require.Equal(t, "7", again.header.Get("Retry-After"))
		require.Equal(t, idempotency.Replayed, site.outcome(t).Result)

		mismatch := site.send(t, http.MethodPost, path, "another body", key)
		requireProblem(t, mismatch, http.StatusUnprocessableEntity, idempotency.Mismatch)
	}
	site.requireRan(t, 11)
}

// Rows 34 and 37: answers without a body are replayed without one, on a connection that is in step
// afterwards.
func TestContent_answersWithoutABody(t *testing.T) {
	t.Parallel()
	store := contentRedis(t)
	handler := func(w http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(r.URL.Query().Get("status"))
		w.Header().Set("Etag", `"v1"`)
		w.WriteHeader(status)
		if n, err := io.WriteString(w, strings.Repeat("no body", (1<<20))); err == nil || n != 0 {
			panic("it was written")
		}
	}
	for _, status := range []int{http.StatusNoContent, http.StatusNotModified} {
		contentProtocols(t, func(t *testing.T, http2 bool) {
			site := store.site(t, contentSetup{http2: http2, handler: handler})
			key, path := contentHeader("Idempotency-Key", rand.Text()), fmt.Sprint("/empty?status=", status)
			first := site.send(t, http.MethodPost, path, "", key)
			again := site.send(t, http.MethodPost, path, "", key)
			again.requireReplayOf(t, first)
			require.Equal(t, status, again.status)
			require.Empty(t, again.body)
			require.Empty(t, again.header["Content-Length"])
			require.Empty(t, again.header["Transfer-Encoding"])
			require.Equal(t, first.header["Etag"], again.header["Etag"])
			site.requireRan(t, 1)
		})
		t.Run("in a row", func(t *testing.T) {
			site := store.site(t, contentSetup{handler: handler})
			conn := site.dial(t)
			for range 3 { // had a replay a body, the next answer would begin in the middle of it
				conn.say(t, fmt.Sprintf("POST /empty?status=%d HTTP/1.1", status), "Host: a", "X-Tenant: acme",
					"Idempotency-Key: row"+strconv.Itoa(status), "Content-Length: 0", "")
			}
			for range 3 {
				a := conn.receive(t)
				require.Equal(t, status, a.status)
				require.Equal(t, `"v1"`, a.header.Get("Etag"))
			}
			site.requireRan(t, 1)
		})
	}
}

// Row 1: a handler that does nothing has answered 200.
func TestContent_aHandlerThatDoesNothing(t *testing.T) {
	t.Parallel()
	store := contentRedis(t)
	contentProtocols(t, func(t *testing.T, http2 bool) {
		site := store.site(t, contentSetup{http2: http2, handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Only", "a header")
		}})
		key := rand.Text()
		first := site.post(t, key, "")
		require.Equal(t, 200, first.status)
		require.EqualValues(t, 0, first.length)
		again := site.post(t, key, "")
		again.requireReplayOf(t, first)
		require.Equal(t, first.header["X-Only"], again.header["X-Only"])
		require.Equal(t, http.StatusOK, site.outcome(t).Status)
		site.requireRan(t, 1)
	})
}

// Row 31.
func TestContent_answersAtTheCap(t *testing.T) {
	t.Parallel()
	const most = 5000
	writers := map[string]func(w http.ResponseWriter, body string){
		"in one":    func(w http.ResponseWriter, body string) { _, _ = w.Write([]byte(body)) },
		"as string": func(w http.ResponseWriter, body string) { _, _ = io.WriteString(w, body) },
		"in parts": func(w http.ResponseWriter, body string) {
			for len(body) > 0 {
				n := min(999, len(body))
				_, _ = w.Write([]byte(body[:n]))
				body = body[n:]
			}
		},
		"copied": func(w http.ResponseWriter, body string) {
			// which has no WriteTo
			_, _ = io.Copy(w, io.LimitReader(strings.NewReader(body), 1<<30))
		},
		"announced": func(w http.ResponseWriter, body string) {
			w.Header().Set("Content-Length", strconv.Itoa(len(body)))
			_, _ = io.WriteString(w, body)
		},
		"announced, copied": func(w http.ResponseWriter, body string) {
			w.Header().Set("Content-Length", strconv.Itoa(len(body)))
			_, _ = io.Copy(w, io.LimitReader(strings.NewReader(body), 1<<30))
		},
	}
	contentProtocols(t, func(t *testing.T, http2 bool) {
		t.Parallel()
		store := contentRedis(t)
		for name, write := range writers {
			handler := func(w http.ResponseWriter, r *http.Request) {
				size, _ := strconv.Atoi(r.URL.Query().Get("size"))
				write(w, strings.Repeat("a", size))
			}
			kept := store.site(t, contentSetup{http2: http2, handler: handler, opts: []guardhttp.Option{idempotency.WithMaxAnswer(most)}})
			rerun := store.site(t, contentSetup{http2: http2, handler: handler,
				opts: []guardhttp.Option{idempotency.WithMaxAnswer(most), idempotency.WithRerun()}})
			for _, size := range []int{most - 1, most} {
				path, key := fmt.Sprint("/large?size=", size), contentHeader("Idempotency-Key", rand.Text())
				first := kept.send(t, http.MethodPost, path, "", key)
				require.Len(t, first.body, size, name)
				kept.send(t, http.MethodPost, path, "", key).requireReplayOf(t, first)
			}
			kept.requireRan(t, 2)
			for i, size := range []int{most + 1, 20 * most} {
				path, key := fmt.Sprint("/large?size=", size), contentHeader("Idempotency-Key", rand.Text())
				first := kept.send(t, http.MethodPost, path, "", key)
				require.NoError(t, first.err)
				require.Len(t, first.body, size, name)
				require.Equal(t, idempotency.KeepTombstone, kept.outcome(t).Kept)
				for range 2 {
					requireProblem(t, kept.send(t, http.MethodPost, path, "", key), http.StatusConflict, idempotency.NotReplayable)
					require.NoError(t, kept.outcome(t).Err)
				}
				requireProblem(t, kept.send(t, http.MethodPost, path, "other", key), http.StatusUnprocessableEntity, idempotency.Mismatch)
				kept.requireRan(t, 3+i)

				for n := range 2 {
					first := rerun.send(t, http.MethodPost, path, "", contentHeader("Idempotency-Key", fmt.Sprintf("%q", name)))
					require.Len(t, first.body, size, name)
					require.False(t, first.replayed())
					require.Equal(t, idempotency.KeepNothing, rerun.outcome(t).Kept)
					rerun.requireRan(t, 2*i+n+1)
				}
			}
		}
	})
}

// Compressed bytes are replayed with their Content-Encoding header.
func TestContent_compressedAnswers(t *testing.T) {
	t.Parallel()
	store := contentRedis(t)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = io.WriteString(z, strings.Repeat("compressed ", 500))
	require.NoError(t, z.Close())
	contentProtocols(t, func(t *testing.T, http2 bool) {
		for _, kind := range []string{"", "text/plain"} {
			site := store.site(t, contentSetup{http2: http2, handler: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Encoding", "gzip")
				if kind != "" {
					w.Header().Set("Content-Type", kind)
				}
				_, _ = w.Write(packed.Bytes())
			}})
			key := rand.Text()
			first := site.post(t, key, "", contentHeader("Accept-Encoding", "gzip"))
			require.Equal(t, packed.String(), first.body)
			require.Equal(t, kind, first.header.Get("Content-Type"))
			again := site.post(t, key, "", contentHeader("Accept-Encoding", "gzip"))
			again.requireReplayOf(t, first)
			require.Equal(t, "gzip", again.header.Get("Content-Encoding"))
			unpacked, err := gzip.NewReader(strings.NewReader(again.body))
			require.NoError(t, err)
			text, err := io.ReadAll(unpacked)
			require.NoError(t, err)
			require.Equal(t, strings.Repeat("compressed ", 500), string(text))
		}
	})
}

func TestContent_fingerprints(t *testing.T) {
	t.Parallel()
	store := contentRedis(t)
	post := func(t *testing.T, site *contentSite, path, key, body string) httpAnswer {
		t.Helper()
		return site.send(t, http.MethodPost, path, body, contentHeader("Idempotency-Key", key))
	}
	t.Run("the query counts, as it was sent", func(t *testing.T) {
		site := store.site(t, contentSetup{handler: contentEcho})
		first := post(t, site, "/f?a=1&b=2", "query", "x")
		post(t, site, "/f?a=1&b=2", "query", "x").requireReplayOf(t, first)
		for _, path := range []string{"/f", "/f?a=1", "/f?b=2&a=1", "/f?a=1&b=%32"} {
			requireProblem(t, post(t, site, path, "query", "x"), 422, idempotency.Mismatch)
		}
	})
	t.Run("a query is not a body", func(t *testing.T) {
		site := store.site(t, contentSetup{handler: contentEcho})
		post(t, site, "/f?ab", "mix", "c")
		requireProblem(t, post(t, site, "/f?a", "mix", "bc"), 422, idempotency.Mismatch)
		requireProblem(t, post(t, site, "/f", "mix", "abc"), 422, idempotency.Mismatch)
	})
	t.Run("of your own", func(t *testing.T) {
		refusal := errors.New("a secret reason")
		site := store.site(t, contentSetup{handler: contentEcho, opts: []guardhttp.Option{
			guardhttp.WithFingerprint(func(r *http.Request, body []byte) ([]byte, error) {
				if string(body) == "bad" {
					return nil, refusal
				}
				return []byte(strings.ToLower(string(body)) + r.Header.Get("X-Version")), nil
			})}})
		first := post(t, site, "/own?q=1", "own", "Body")
		post(t, site, "/own?q=2", "own", "bODY").requireReplayOf(t, first)
		requireProblem(t, post(t, site, "/own", "own", "other"), 422, idempotency.Mismatch)
		requireProblem(t, site.send(t, http.MethodPost, "/own", "Body", contentHeader("Idempotency-Key", "own"), contentHeader("X-Version", "2")), 422, idempotency.Mismatch)
		bad := post(t, site, "/own", "new", "bad")
		requireProblem(t, bad, http.StatusBadRequest, idempotency.BodyInvalid)
		require.NotContains(t, bad.body, "secret")
		require.ErrorIs(t, site.outcome(t).Err, refusal)
		site.requireRan(t, 1)
	})
	t.Run("an empty one of your own is one", func(t *testing.T) {
		site := store.site(t, contentSetup{handler: contentEcho, opts: []guardhttp.Option{
			guardhttp.WithFingerprint(func(_ *http.Request, body []byte) ([]byte, error) { return body, nil })}})
		post(t, site, "/nil", "nil", "")
		requireProblem(t, post(t, site, "/nil", "nil", "x"), 422, idempotency.Mismatch)
	})
	t.Run("none", func(t *testing.T) {
		site := store.site(t, contentSetup{handler: contentEcho, opts: []guardhttp.Option{guardhttp.WithFingerprint(nil)}})
		first := post(t, site, "/none?a", "none", "one")
		post(t, site, "/none?b", "none", "two").requireReplayOf(t, first)
		printing := store.site(t, contentSetup{handler: contentEcho})
		// whose record has none to compare with
		post(t, printing, "/none?b", "none", "two").requireReplayOf(t, first)
		site.requireRan(t, 1)
		printing.requireRan(t, 0)
	})
	t.Run("rejecting takes one if it is given", func(t *testing.T) {
		site := store.site(t, contentSetup{handler: contentEcho, opts: []guardhttp.Option{idempotency.WithMode(idempotency.Reject),
			guardhttp.WithFingerprint(func(_ *http.Request, body []byte) ([]byte, error) { return body, nil })}})
		post(t, site, "/reject", "reject", "one")
		requireProblem(t, post(t, site, "/reject", "reject", "two"), 422, idempotency.Mismatch)
		requireProblem(t, post(t, site, "/reject", "reject", "one"), 409, idempotency.Done)
		plain := store.site(t, contentSetup{handler: contentEcho, opts: []guardhttp.Option{idempotency.WithMode(idempotency.Reject)}})
		post(t, plain, "/plain", "reject", "one")
		requireProblem(t, post(t, plain, "/plain", "reject", "two"), 409, idempotency.Done)
	})
}

// Row 37, and row 3: what has no key is passed on, and the store is not asked.
func TestContent_methods(t *testing.T) {
	t.Parallel()
	store := contentRedis(t)
	asked := func(t *testing.T) int64 { return store.server.Calls(t)["evalsha"] + store.server.Calls(t)["eval"] }
	handler := func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Method, idempotency.Key(r.Context()))
	}
	t.Run("that change nothing", func(t *testing.T) {
		site := store.site(t, contentSetup{handler: handler})
		before := asked(t)
		for i, method := range []string{"GET", "HEAD", "OPTIONS", "TRACE", "QUERY"} {
			for n := range 2 {
				a := site.send(t, method, "/m", "", contentHeader("Idempotency-Key", "k"))
				require.Equal(t, 200, a.status)
				require.Equal(t, map[bool]string{true: method, false: ""}[method != "HEAD"], a.body)
				require.False(t, a.replayed())
				require.Equal(t, idempotency.Untouched, site.outcome(t).Result)
				site.requireRan(t, 2*i+n+1)
			}
		}
		require.Equal(t, before, asked(t))
		require.Equal(t, 200, site.send(t, "GET", "/m", "", contentHeader("Idempotency-Key", `"`)).status, "no key is looked for")
	})
	t.Run("that do", func(t *testing.T) {
		site := store.site(t, contentSetup{handler: handler})
		for i, method := range []string{"POST", "PUT", "PATCH", "DELETE", "LOCK", "post"} {
			first := site.send(t, method, "/m", "", contentHeader("Idempotency-Key", "k"))
			require.Equal(t, method+"k", first.body)
			site.send(t, method, "/m", "", contentHeader("Idempotency-Key", "k")).requireReplayOf(t, first)
			site.requireRan(t, i+1)
		}
	})
	t.Run("that need no key", func(t *testing.T) {
		site := store.site(t, contentSetup{handler: handler})
		before := asked(t)
		for i, method := range []string{"PUT", "DELETE", "LOCK"} {
			require.Equal(t, method, site.send(t, method, "/keyless", "").body)
			require.Equal(t, idempotency.Untouched, site.outcome(t).Result)
			requireProblem(t, site.send(t, method, "/keyless", "", contentHeader("Idempotency-Key", `"`)), 400, idempotency.KeyInvalid)
			site.requireRan(t, i+1)
		}
		require.Equal(t, before, asked(t))
	})
	t.Run("that were chosen", func(t *testing.T) {
		site := store.site(t, contentSetup{handler: handler, opts: []guardhttp.Option{guardhttp.WithMethods("GET", "POST")}})
		for i, method := range []string{"GET", "POST"} {
			first := site.send(t, method, "/chosen", "", contentHeader("Idempotency-Key", "k"))
			site.send(t, method, "/chosen", "", contentHeader("Idempotency-Key", "k")).requireReplayOf(t, first)
			site.requireRan(t, i+1)
		}
		for range 2 {
			require.Equal(t, "PUT", site.send(t, "PUT", "/chosen", "", contentHeader("Idempotency-Key", "k")).body)
		}
		site.requireRan(t, 4)
		requireProblem(t, site.send(t, "GET", "/chosen", ""), 400, idempotency.KeyMissing)
		site.requireRan(t, 4)
	})
	t.Run("without a key", func(t *testing.T) {
		site := store.site(t, contentSetup{handler: handler, opts: []guardhttp.Option{idempotency.WithOptionalKey()}})
		before := asked(t)
		for range 2 {
			a := site.send(t, "POST", "/optional", "")
			require.Equal(t, "POST", a.body)
			require.False(t, a.replayed())
			require.Equal(t, idempotency.Untouched, site.outcome(t).Result)
		}
		site.requireRan(t, 2)
		require.Equal(t, before, asked(t))
		// what is there must be good
		for _, bad := range []string{"", `"`, "a b", strings.Repeat("k", 256)} {
			requireProblem(t, site.post(t, bad, ""), 400, idempotency.KeyInvalid)
		}
		site.requireRan(t, 2)
		first := site.post(t, "k", "")
		require.Equal(t, "POSTk", first.body)
		site.post(t, "k", "").requireReplayOf(t, first)
	})
	t.Run("without a key that is required", func(t *testing.T) { // row 4
		site := store.site(t, contentSetup{handler: handler})
		before := asked(t)
		requireProblem(t, site.send(t, "PATCH", "/required", ""), 400, idempotency.KeyMissing)
		requireProblem(t, site.send(t, "POST", "/required", ""), 400, idempotency.KeyMissing)
		require.Equal(t, idempotency.KeyMissing, site.outcome(t).Result)
		require.ErrorIs(t, site.outcome(t).Err, idempotency.ErrNoKey)
		site.requireRan(t, 0)
		require.Equal(t, before, asked(t))
	})
}

// Row 39: a client that is not authorized does not get the answer.
func TestContent_authenticationComesFirst(t *testing.T) {
	t.Parallel()
	var revoked atomic.Bool
	site := contentRedis(t).site(t, contentSetup{handler: contentEcho,
		mount: func(idempotent func(http.Handler) http.Handler, h http.Handler) http.Handler {
			inner := idempotent(h)
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if revoked.Load() {
					http.Error(w, "no longer", http.StatusForbidden)
					return
				}
				inner.ServeHTTP(w, r)
			})
		}})
	first := site.post(t, "k", "secret")
	site.post(t, "k", "secret").requireReplayOf(t, first)
	revoked.Store(true)
	a := site.post(t, "k", "secret")
	require.Equal(t, http.StatusForbidden, a.status)
	require.NotContains(t, a.body, "secret")
	require.False(t, a.replayed())
	site.requireRan(t, 1)
}

// Rows 23, 24 and 25.
func TestContent_scopes(t *testing.T) {
	t.Parallel()
	store := contentRedis(t)
	whoami := func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "for ", r.Header.Get("X-Tenant")) }
	t.Run("two tenants have two answers", func(t *testing.T) {
		site := store.site(t, contentSetup{handler: whoami})
		before := len(store.leases(t))
		a := site.post(t, "k", "", contentHeader("X-Tenant", "a"))
		b := site.post(t, "k", "", contentHeader("X-Tenant", "b"))
		require.Equal(t, "for a", a.body)
		require.Equal(t, "for b", b.body)
		require.False(t, b.replayed())
		require.Len(t, store.leases(t), before+2)
		site.post(t, "k", "", contentHeader("X-Tenant", "a")).requireReplayOf(t, a)
		site.post(t, "k", "", contentHeader("X-Tenant", "b")).requireReplayOf(t, b)
		site.requireRan(t, 2)
	})
	t.Run("of scopes and keys that run together when joined", func(t *testing.T) {
		site := store.site(t, contentSetup{handler: whoami})
		pairs := [][2]string{{"a", "bc"}, {"ab", "c"}, {"a:b", "c"}, {"a", "b:c"}, {"a|b", "c"}, {"a", "b|c"}, {"a/b", "c"}, {"a", "b/c"},
			{"a\x01", "c"}, {"once", "pathPOST"}, {"{a}", "c"}, {"a", "{c}"}}
		for i, p := range pairs {
			if strings.ContainsAny(p[0], "\x01") {
				continue
			}
			a := site.post(t, p[1], "", contentHeader("X-Tenant", p[0]))
			require.False(t, a.replayed(), "%q", p)
			require.Equal(t, "for "+p[0], a.body, "%d", i)
		}
	})
	t.Run("that stay while the token changes", func(t *testing.T) {
		site := store.site(t, contentSetup{handler: whoami})
		first := site.post(t, "token", "", contentHeader("Authorization", "Bearer one"), contentHeader("Cookie", "s=1"))
		site.post(t, "token", "", contentHeader("Authorization", "Bearer two"), contentHeader("User-Agent", "another")).requireReplayOf(t, first)
		site.requireRan(t, 1)
	})
	t.Run("that cannot be found out", func(t *testing.T) {
		boom := errors.New("the secret database is down")
		for name, scope := range map[string]guardhttp.KeyFunc{
			"empty":           func(*http.Request) (string, error) { return "", nil },
			"error":           func(*http.Request) (string, error) { return "", boom },
			"text and error":  func(*http.Request) (string, error) { return "shared", boom },
			"no header":       guardhttp.FromHeader("X-Nobody"),
			"no context":      guardhttp.FromContext("nothing"),
			"no field":        guardhttp.FromJSON("tenant"),
			"no form":         guardhttp.FromForm("tenant"),
			"part is missing": guardhttp.Join(guardhttp.FromHeader("X-Tenant"), guardhttp.FromHeader("X-Nobody")),
			"part is empty":   guardhttp.Join(guardhttp.FromHeader("X-Tenant"), func(*http.Request) (string, error) { return "", nil }),
		} {
			for _, opts := range [][]guardhttp.Option{nil, {idempotency.WithOptionalKey()}} {
				site := store.site(t, contentSetup{handler: whoami, opts: append(opts, guardhttp.WithScope(scope))})
				before := store.server.Calls(t)["evalsha"]
				a := site.post(t, "k", "{}")
				requireProblem(t, a, http.StatusInternalServerError, idempotency.Refused)
				require.NotContains(t, a.body, "database")
				require.NotContains(t, a.body, "X-Nobody")
				o := site.outcome(t)
				require.Equal(t, idempotency.Refused, o.Result, name)
				require.Error(t, o.Err)
				site.requireRan(t, 0)
				require.Equal(t, before, store.server.Calls(t)["evalsha"], "the store is not asked")
			}
		}
	})
	t.Run("keys that cannot be found out", func(t *testing.T) {
		boom := errors.New("the secret database is down")
		for _, opts := range [][]guardhttp.Option{nil, {idempotency.WithOptionalKey()}} {
			site := store.site(t, contentSetup{handler: whoami, opts: opts, key: func(*http.Request) (string, error) { return "k", boom }})
			a := site.post(t, "k", "")
			requireProblem(t, a, http.StatusInternalServerError, idempotency.Refused)
			require.NotContains(t, a.body, "database")
			require.ErrorIs(t, site.outcome(t).Err, boom)
			site.requireRan(t, 0)
		}
	})
	t.Run("global keys are those of all", func(t *testing.T) {
		site := store.site(t, contentSetup{handler: whoami, global: true})
		first := site.post(t, "global", "", contentHeader("X-Tenant", "a"))
		site.post(t, "global", "", contentHeader("X-Tenant", "b")).requireReplayOf(t, first)
		site.requireRan(t, 1)
	})
}
