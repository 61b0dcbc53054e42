package frameworks_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

var update = flag.Bool("update", false, "write the table in the documentation anew")

const table = "../../../docs/http-frameworks.md"

// patience is for what should come at once.
const patience = 20 * time.Second

// A booth is a stand that is open, with a client.
type booth struct {
	*shop
	stand
	url    string
	client *http.Client
	ended  chan idempotency.Outcome
}

func open(t *testing.T, st stand, opts ...guardhttp.Option) *booth {
	t.Helper()
	g, err := guard.New(memory.New(), guard.WithNamespace("test"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
	b := &booth{shop: &shop{got: make(chan bool, 1), gone: make(chan bool, 1)}, stand: st, ended: make(chan idempotency.Outcome, 10)}
	idempotent, err := guardhttp.New(g, guardhttp.IdempotencyKey, append(opts, idempotency.WithGlobalKeys(),
		guardhttp.WithFingerprint(guardhttp.FingerprintMultipart),
		idempotency.WithObserver(func(_ context.Context, o idempotency.Outcome) { b.ended <- o }))...)
	require.NoError(t, err)
	if st.serve != nil {
		b.url, b.client = "http://"+st.serve(t, b.shop, idempotent), &http.Client{Transport: new(http.Transport), Timeout: patience}
		t.Cleanup(b.client.CloseIdleConnections)
		return b
	}
	server := httptest.NewUnstartedServer(st.mount(t, b.shop, idempotent))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	if st.http2 {
		server.EnableHTTP2 = true
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	b.url, b.client = server.URL, server.Client()
	b.client.Timeout = patience
	return b
}

// A reply is what a client got.
type reply struct {
	status   int
	header   http.Header
	body     string
	replayed bool
	err      error
}

// send sends a request and waits until the middleware has returned.
func (b *booth) send(t *testing.T, path, kind string, body io.Reader) reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url+path, body)
	require.NoError(t, err)
	r.Header.Set("Idempotency-Key", "k")
	r.Header.Set("Content-Type", kind)
	response, err := b.client.Do(r)
	a := reply{err: err}
	if err == nil {
		var all []byte
		all, a.err = io.ReadAll(response.Body)
		require.NoError(t, response.Body.Close())
		a.status, a.header, a.body = response.StatusCode, response.Header, string(all)
		a.replayed = response.Header.Get("Idempotency-Replayed") == "true"
	}
	b.end(t)
	return a
}

func (b *booth) post(t *testing.T, path string) reply {
	t.Helper()
	return b.send(t, path, "text/plain", strings.NewReader("body"))
}

func (b *booth) end(t *testing.T) {
	t.Helper()
	select {
	case <-b.ended:
	case <-time.After(patience):
		require.Fail(t, "the middleware has not returned")
	}
}

// again sends a retry, and returns what it led to.
func (b *booth) again(t *testing.T, path string, first reply) string {
	t.Helper()
	runs := b.runs.Load()
	a := b.post(t, path)
	return b.judge(t, runs, first, a)
}

func (b *booth) judge(t *testing.T, runs int64, first, a reply) string {
	t.Helper()
	require.NoError(t, a.err)
	switch {
	case a.replayed:
		require.Equal(t, runs, b.runs.Load())
		require.Equal(t, first.status, a.status)
		require.Equal(t, first.body, a.body)
		for _, name := range []string{"Content-Type", "Location"} {
			require.Equal(t, first.header[name], a.header[name], name)
		}
		return "replayed"
	case b.runs.Load() > runs:
		return "runs again"
	}
	require.Contains(t, a.body, `"code":"not_replayable"`)
	return fmt.Sprint(a.status, ", it ran")
}

// The columns of the table.
var columns = []struct {
	name, path string
	try        func(t *testing.T, b *booth, path string) string
	want       string
	buffered   string // if the stand buffers
}{
	{"201 with body and headers", "/created", created, "201; replayed", ""},
	{"error after return", "/error", failed, "500; runs again", ""},
	{"flush", "/flush", func(t *testing.T, b *booth, path string) string { return flushed(t, b, path, flushedPart) }, "at once; replayed", "at the end; replayed"},
	{"stream", "/stream", func(t *testing.T, b *booth, path string) string { return flushed(t, b, path, "data: 1\n\n") }, "at once; 409, it ran", "at the end; 409, it ran"},
	{"upload", "/upload", uploaded, "201; replayed", ""},
	{"panic", "/panic", panicked, "fails; runs again", ""},
	{"client gone", "/gone", left, "runs on; replayed", ""},
	{"replay", "/created", replayed, "the same, marked; 422 for another body", ""},
}

func created(t *testing.T, b *booth, path string) string {
	first := b.post(t, path)
	require.NoError(t, first.err)
	require.Equal(t, receipt, first.body)
	require.Equal(t, "/claims/1", first.header.Get("Location"))
	require.Contains(t, first.header.Get("Content-Type"), "application/json")
	return fmt.Sprint(first.status, "; ", b.again(t, path, first))
}

func failed(t *testing.T, b *booth, path string) string {
	first := b.post(t, path)
	require.NoError(t, first.err)
	require.Contains(t, first.body, errShop.Error())
	return fmt.Sprint(first.status, "; ", b.again(t, path, first))
}

func flushed(t *testing.T, b *booth, path, part string) string {
	if b.buffers {
		b.got <- true
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url+path, strings.NewReader("body"))
	require.NoError(t, err)
	r.Header.Set("Idempotency-Key", "k")
	r.Header.Set("Content-Type", "text/plain")
	response, err := b.client.Do(r)
	require.NoError(t, err)
	begin := make([]byte, len(part))
	_, err = io.ReadFull(response.Body, begin)
	require.NoError(t, err)
	require.Equal(t, part, string(begin))
	how := "at the end"
	if !b.buffers {
		how = "at once" // the handler still waits
		b.got <- true
	}
	rest, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	b.end(t)
	b.got <- true // in case that it runs again
	first := reply{status: response.StatusCode, header: response.Header, body: string(begin) + string(rest)}
	return how + "; " + b.again(t, path, first)
}

func uploaded(t *testing.T, b *booth, path string) string {
	form := func() (string, io.Reader) {
		var all bytes.Buffer
		w := multipart.NewWriter(&all) // with a boundary of its own
		file, err := w.CreateFormFile("file", "a.txt")
		require.NoError(t, err)
		_, err = io.WriteString(file, "content")
		require.NoError(t, err)
		require.NoError(t, w.Close())
		return w.FormDataContentType(), &all
	}
	kind, body := form()
	first := b.send(t, path, kind, body)
	require.NoError(t, first.err)
	require.Equal(t, "content", first.body)
	runs := b.runs.Load()
	kind, body = form()
	return fmt.Sprint(first.status, "; ", b.judge(t, runs, first, b.send(t, path, kind, body)))
}

func panicked(t *testing.T, b *booth, path string) string {
	first := b.post(t, path)
	require.True(t, first.err != nil || first.status >= 500, "%+v", first)
	return "fails; " + b.again(t, path, first)
}

func left(t *testing.T, b *booth, path string) string {
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url+path, strings.NewReader("body"))
	require.NoError(t, err)
	r.Header.Set("Idempotency-Key", "k")
	r.Header.Set("Content-Type", "text/plain")
	over := make(chan error, 1)
	go func() {
		_, err := b.client.Do(r) //nolint:bodyclose // there is none
		over <- err
	}()
	require.Eventually(t, func() bool { return b.runs.Load() == 1 }, patience, time.Millisecond)
	cancel()
	require.Error(t, <-over)
	b.gone <- true
	b.end(t)
	b.gone <- true // in case that it runs again
	runs := b.runs.Load()
	a := b.post(t, path)
	require.Equal(t, receipt, a.body)
	return "runs on; " + b.judge(t, runs, a, a)
}

func replayed(t *testing.T, b *booth, path string) string {
	first := b.post(t, path)
	for range 3 {
		if a := b.again(t, path, first); a != "replayed" {
			return a
		}
	}
	other := b.send(t, path, "text/plain", strings.NewReader("another body"))
	require.NoError(t, other.err)
	return fmt.Sprint("the same, marked; ", other.status, " for another body")
}

// An answer that is held back until its record is in the store is the same.
func TestMatrix_afterTheRecord(t *testing.T) {
	for _, st := range stands {
		for _, c := range columns {
			t.Run(st.name+"/"+c.name, func(t *testing.T) {
				want := c.want
				if st.buffers && c.buffered != "" {
					want = c.buffered
				}
				require.Equal(t, want, c.try(t, open(t, st, idempotency.WithAnswerAfterRecord()), c.path))
			})
		}
	}
}

// Every framework, with everything that handlers do. The table in the documentation is what this
// test has seen.
func TestMatrix(t *testing.T) {
	var page strings.Builder
	page.WriteString("| |")
	for _, c := range columns {
		page.WriteString(" " + c.name + " |")
	}
	page.WriteString("\n|---|" + strings.Repeat("---|", len(columns)) + "\n")
	for _, st := range stands {
		page.WriteString("| " + st.name + " |")
		for _, c := range columns {
			t.Run(st.name+"/"+c.name, func(t *testing.T) {
				got := c.try(t, open(t, st), c.path)
				want := c.want
				if st.buffers && c.buffered != "" {
					want = c.buffered
				}
				require.Equal(t, want, got)
				page.WriteString(" " + got + " |")
			})
		}
		page.WriteString("\n")
	}
	text, err := os.ReadFile(table)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(text), "<!-- matrix -->\n")
	require.True(t, found)
	_, after, found := strings.Cut(rest, "<!-- end -->\n")
	require.True(t, found)
	want := before + "<!-- matrix -->\n" + page.String() + "<!-- end -->\n" + after
	if *update && !t.Failed() {
		require.NoError(t, os.WriteFile(table, []byte(want), 0o600))
		return
	}
	require.Equal(t, want, string(text), "run go test -update")
}
