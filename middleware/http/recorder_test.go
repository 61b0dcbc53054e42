package guardhttp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/middleware/idempotency"
	"github.com/seed-1795987d/onerun/middleware/internal/idempotent"
	"github.com/seed-1795987d/onerun/middleware/internal/keys"
)

// A recorderWriter is a writer behind a recorder, whose client goes away after some bytes.
type recorderWriter struct {
	header http.Header
	status int
	got    bytes.Buffer
	left   int   // bytes until the client goes
	err    error // that it leaves behind
	parts  int
}

func newRecorderWriter() *recorderWriter {
	return &recorderWriter{header: http.Header{}, left: 1 << 30, err: errors.New("the client has gone")}
}

func (w *recorderWriter) Header() http.Header { return w.header }

func (w *recorderWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}

func (w *recorderWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	w.parts++
	n := min(w.left, len(p))
	w.left -= n
	w.got.Write(p[:n])
	if n < len(p) {
		return n, w.err
	}
	return n, nil
}

func recorderHow(most int) recording {
	return recording{most: most, keep: true, tolerant: true, ctx: context.Background(), run: new(idempotency.Run)}
}

// flushed returns a recorder whose handler has flushed its answer: all else is sent at once.
func flushed(t *testing.T, w *recorderWriter, how recording) *recorder {
	t.Helper()
	c := newRecorder(recorderFlusher{w}, how)
	require.NoError(t, http.NewResponseController(c.writer).Flush())
	return c
}

// Row 17: a handler does not learn that its client has gone, and its answer is recorded to the
// end.
func TestRecorder_clientThatGoes(t *testing.T) {
	t.Parallel()
	for name, length := range map[string]string{"announced": "300", "not announced": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newRecorderWriter()
			w.left = 150
			if length != "" {
				w.header.Set("Content-Length", length)
			}
			c := flushed(t, w, recorderHow(1000))
			for range 3 {
				n, err := io.WriteString(c.writer, strings.Repeat("x", 100))
				require.Equal(t, 100, n)
				require.NoError(t, err)
			}
			v := c.end()
			c.sendKept()
			require.True(t, v.gone)
			require.NotNil(t, v.answer)
			require.Equal(t, strings.Repeat("x", 300), string(v.answer.Body))
			require.Equal(t, 150, w.got.Len())
			require.LessOrEqual(t, w.parts, 3, "there are no more writes to a client that has gone")
		})
	}
}

// The handler learns it if the client may cancel, or if the answer is not recorded in any case.
func TestRecorder_reportsAClientThatGoes(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]recording{
		"not tolerant": {most: 1000, keep: true, ctx: context.Background(), run: new(idempotency.Run)},
		"too large":    recorderHow(50),
		"no record":    recorderHow(-1),
	} {
		w := newRecorderWriter()
		w.left = 150
		c := flushed(t, w, how)
		_, err := io.WriteString(c.writer, strings.Repeat("x", 100))
		require.NoError(t, err)
		n, err := io.WriteString(c.writer, strings.Repeat("x", 100))
		require.ErrorIs(t, err, w.err, name)
		require.Equal(t, 50, n)
		require.True(t, c.end().gone)
	}
}

// If a client goes before its answer turns out to be too large, a tombstone is left, and the
// handler's next write fails.
func TestRecorder_clientThatGoesBeforeItIsTooMuch(t *testing.T) {
	t.Parallel()
	w := newRecorderWriter()
	w.left = 0
	c := flushed(t, w, recorderHow(250))
	for range 2 {
		_, err := io.WriteString(c.writer, strings.Repeat("x", 100))
		require.NoError(t, err)
	}
	_, err := io.WriteString(c.writer, strings.Repeat("x", 100))
	require.ErrorIs(t, err, w.err)
	v := c.end()
	require.Nil(t, v.answer)
	require.Empty(t, c.body, "it holds on to nothing")
}

// A handler learns of its own mistakes, even if its client has gone.
func TestRecorder_reportsMistakes(t *testing.T) {
	t.Parallel()
	for _, mistake := range []error{http.ErrContentLength, http.ErrBodyNotAllowed, http.ErrHijacked} {
		w := newRecorderWriter()
		w.left, w.err = 0, mistake
		c := flushed(t, w, recorderHow(1000))
		_, err := c.writer.Write([]byte("x"))
		require.ErrorIs(t, err, mistake)
		require.False(t, c.end().gone, "%v", mistake)
	}
}

// What is copied into a record is bounded, however large the answer and its parts.
func TestRecorder_memory(t *testing.T) {
	t.Parallel()
	for _, part := range []int{1, 999, 1000, 1001, 100_000} {
		w := newRecorderWriter()
		c := newRecorder(w, recorderHow(1000))
		for range 3000/part + 1 {
			n, err := c.writer.Write(make([]byte, part))
			require.NoError(t, err)
			require.Equal(t, part, n)
			require.LessOrEqual(t, len(c.body), 1000)
		}
		require.Nil(t, c.body)
		require.Nil(t, c.end().answer)
		require.Equal(t, (3000/part+1)*part, w.got.Len(), "the client has all of it")
	}
}

// Nobody makes room for a body that was only announced. Not in parallel: it counts what is
// allocated.
func TestContent_announcedBodiesTakeNoRoom(t *testing.T) {
	b := &body{source: io.NopCloser(strings.NewReader("short")), max: 1 << 40, length: 1 << 30}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	all, err := b.load()
	runtime.ReadMemStats(&after)
	require.NoError(t, err)
	require.Equal(t, "short", string(all))
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20))
}

// Nothing of an answer is sent before its record is there.
func TestRecorder_keepsTheAnswer(t *testing.T) {
	t.Parallel()
	for _, parts := range []string{"1", "12", "12|3", "1|2|3", "123|", "|123"} {
		for _, announced := range []bool{true, false} {
			whole := strings.ReplaceAll(parts, "|", "")
			w := newRecorderWriter()
			if announced {
				w.header.Set("Content-Length", strconv.Itoa(len(whole)))
			}
			c := newRecorder(w, recorderHow(1000))
			for p := range strings.SplitSeq(parts, "|") {
				n, err := io.WriteString(c.writer, p)
				require.NoError(t, err)
				require.Equal(t, len(p), n)
			}
			v := c.end()
			require.Equal(t, whole, string(v.answer.Body))
			require.Zero(t, w.status, parts)
			require.Zero(t, w.parts, parts)
			c.sendKept()
			c.sendKept()
			require.Equal(t, whole, w.got.String())
			require.Equal(t, http.StatusOK, w.status)
		}
	}
	how := recorderHow(1000)
	how.keep = false
	w := newRecorderWriter()
	_, _ = io.WriteString(newRecorder(w, how).writer, "123")
	require.Equal(t, "123", w.got.String(), "in shadow mode it is sent at once")
}

// A recorderFlusher is a writer that can be flushed.
type recorderFlusher struct{ *recorderWriter }

func (w recorderFlusher) Flush() {}

// A flush sends what is kept, once and for all, and the answer is recorded to its end.
func TestRecorder_flush(t *testing.T) {
	t.Parallel()
	w := newRecorderWriter()
	w.header.Set("Content-Length", "6")
	c := newRecorder(recorderFlusher{w}, recorderHow(1000))
	_, _ = io.WriteString(c.writer, "123")
	require.Empty(t, w.got.String())
	c.writer.(http.Flusher).Flush()
	require.Equal(t, "123", w.got.String())
	_, _ = io.WriteString(c.writer, "456")
	require.Equal(t, "123456", w.got.String())
	require.Equal(t, "123456", string(c.end().answer.Body))
}

func TestProblem_secondsAreRoundedUp(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]int64{
		1: 1, time.Millisecond: 1, time.Second - 1: 1, time.Second: 1, time.Second + 1: 2, 90 * time.Second: 90, 24*time.Hour - 1: 86400,
		0: 1, -time.Hour: 1,
	} {
		require.Equal(t, want, seconds(d), "%v", d)
	}
}

// Fingerprints, and keys of the store, of what is not the same are not the same.
func TestKeys_identity(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	one := func(what string, m *middleware, scope, key, method, target string) {
		t.Helper()
		r, err := http.NewRequest(method, "http://a"+target, http.NoBody)
		require.NoError(t, err)
		r.RequestURI = target
		id := m.identity(scope, key, "", r)
		require.Regexp(t, "^http:[A-Za-z0-9_-]{43}$", id)
		require.Equal(t, id, m.identity(scope, key, "", r))
		require.Empty(t, seen[id], "%s is %s", what, seen[id])
		seen[id] = what
	}
	of := func() *middleware {
		return &middleware{settings: settings{Settings: idempotent.Defaults(idempotent.HTTP)}}
	}
	plain, grouped, other := of(), of(), of()
	grouped.Group, other.Group = "g", "h"
	exclusive, both := of(), of()
	exclusive.Mode, both.Mode, both.Group = idempotency.Exclusive, idempotency.Exclusive, "g"
	rewritten := func(what, sent, became string) {
		t.Helper()
		r, err := http.NewRequest(http.MethodPost, "http://a"+became, http.NoBody)
		require.NoError(t, err)
		r.RequestURI = sent
		id := plain.identity("s", "k", "", r)
		require.Empty(t, seen[id], "%s is %s", what, seen[id])
		seen[id] = what
	}
	rewritten("one path of two", "/front", "/a/b")
	rewritten("another path of two", "/front", "/a%2Fb")
	rewritten("two paths of one, the first", "/a/b", "/back")
	rewritten("two paths of one, the second", "/a%2Fb", "/back")
	r, err := http.NewRequest(http.MethodPost, "http://a/p", http.NoBody)
	require.NoError(t, err)
	r.RequestURI = "/p"
	seen[plain.identity("s", "k", "a.example.com", r)] = "a host"
	seen[plain.identity("s", "k", "b.example.com", r)] = "another host"
	one("plain", plain, "s", "k", "POST", "/p")
	one("another scope", plain, "S", "k", "POST", "/p")
	one("another key", plain, "s", "K", "POST", "/p")
	one("another method", plain, "s", "k", "PUT", "/p")
	one("another path", plain, "s", "k", "POST", "/P")
	one("a path in the key", plain, "s", "/pk", "POST", "/")
	one("scope and key swapped", plain, "k", "s", "POST", "/p")
	one("no scope", plain, "", "k", "POST", "/p")
	one("scope runs into the key", plain, "sk", "", "POST", "/p")
	one("encoded", plain, "s", "k", "POST", "/%2Fp")
	one("not encoded", plain, "s", "k", "POST", "//p")
	one("grouped", grouped, "s", "k", "POST", "/p")
	one("another group", other, "s", "k", "POST", "/p")
	one("exclusive", exclusive, "s", "k", "POST", "/p")
	one("exclusive, grouped", both, "s", "k", "POST", "/p")

	nul := strings.Repeat("\x00", 8)
	for _, pair := range [][2][]string{{{"a", "bc"}, {"ab", "c"}}, {{"a", ""}, {"", "a"}}, {{"a"}, {"a", ""}}, {{}, {""}},
		{{"a" + nul + "b", "c"}, {"a", "b" + nul + "c"}}, {{nul + "\x01a"}, {"", "a"}}, {{nul[1:] + "\x01a", "b"}, {"", nul[1:] + "\x01b"}}} {
		require.NotEqual(t, keys.Hash(pair[0]...), keys.Hash(pair[1]...), "%q", pair)
	}

	r, err = http.NewRequest(http.MethodPut, "http://a/other?q", http.NoBody)
	require.NoError(t, err)
	require.Equal(t, "grouped", seen[grouped.identity("s", "k", "host", r)], "in a group the path is of no account")
	reject := of()
	reject.Mode = idempotency.Reject
	r, err = http.NewRequest(http.MethodPost, "http://a/p?another=query", http.NoBody)
	require.NoError(t, err)
	r.RequestURI = "/p?another=query"
	require.Equal(t, "plain", seen[reject.identity("s", "k", "", r)], "nor is the query, which is in the fingerprint")
}

func TestContent_sameFingerprints(t *testing.T) {
	t.Parallel()
	print := func(query, body string) []byte {
		r, err := http.NewRequest(http.MethodPost, "http://a/?"+query, http.NoBody)
		require.NoError(t, err)
		p, err := fingerprint(nil).of(r, []byte(body))
		require.NoError(t, err)
		require.Len(t, p, idempotent.FingerprintSize)
		return p
	}
	require.True(t, idempotent.Same(print("q", "b"), print("q", "b")))
	for _, other := range [][2]string{{"q", "c"}, {"r", "b"}, {"qb", ""}, {"", "qb"}, {"b", "q"}} {
		require.False(t, idempotent.Same(print("q", "b"), print(other[0], other[1])), "%q", other)
	}
	require.True(t, idempotent.Same(nil, print("q", "b")))
	require.True(t, idempotent.Same(print("q", "b"), nil))
	require.False(t, idempotent.Same(print("q", "b"), print("q", "b")[:31]))
}

// A recorderFile is a writer with a fast way for files, as net/http has one.
type recorderFile struct {
	*recorderWriter
	sources []io.Reader
	fast    int64 // bytes that went the fast way
}

func (w *recorderFile) ReadFrom(src io.Reader) (int64, error) {
	w.sources = append(w.sources, src)
	n, err := io.Copy(w.recorderWriter, src)
	w.fast += n
	return n, err
}

// A file that is too large to record goes the fast way.
func TestRecorder_file(t *testing.T) {
	t.Parallel()
	const size = 100_000
	name := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(name, bytes.Repeat([]byte("0123456789"), size/10), 0o600))
	readFrom := func(w http.ResponseWriter, f *os.File) (int64, error) { return w.(io.ReaderFrom).ReadFrom(f) }
	for what, c := range map[string]struct {
		length string
		copy   func(w http.ResponseWriter, f *os.File) (int64, error)
	}{
		"whole": {"100000", readFrom},
		"after its status": {"100000", func(w http.ResponseWriter, f *os.File) (int64, error) {
			w.WriteHeader(http.StatusOK)
			return w.(io.ReaderFrom).ReadFrom(f)
		}},
		"a part":             {"100000", func(w http.ResponseWriter, f *os.File) (int64, error) { return io.CopyN(w, f, size) }},
		"a longer part":      {"100000", func(w http.ResponseWriter, f *os.File) (int64, error) { return io.Copy(w, io.LimitReader(f, 2*size)) }},
		"two parts":          {"100000", recorderTwice},
		"shorter":            {"100001", readFrom},
		"not announced":      {"", readFrom},
		"announced nonsense": {"a lot", readFrom},
	} {
		t.Run(what, func(t *testing.T) {
			f, err := os.Open(name)
			require.NoError(t, err)
			defer f.Close()
			w := &recorderFile{recorderWriter: newRecorderWriter()}
			if c.length != "" {
				w.header.Set("Content-Length", c.length)
			}
			r := newRecorder(w, recorderHow(1000))
			n, err := c.copy(r.writer, f)
			require.NoError(t, err)
			require.EqualValues(t, size, n)
			require.NotEmpty(t, w.sources, "it has gone the fast way")
			if what == "after its status" {
				require.EqualValues(t, size, w.fast, "all of it, as it was known to be too large")
			}
			if limited, ok := w.sources[0].(*io.LimitedReader); ok {
				require.IsType(t, f, limited.R, "net/http looks through one limit for a file")
			}
			v := r.end()
			require.Nil(t, v.answer, "it was too large")
			require.Equal(t, http.StatusOK, v.status)
			require.Equal(t, bytes.Repeat([]byte("0123456789"), size/10), w.got.Bytes())
		})
	}
}

func recorderTwice(w http.ResponseWriter, f *os.File) (int64, error) {
	first, err := io.CopyN(w, f, 60_000)
	if err != nil {
		return first, err
	}
	second, err := io.CopyN(w, f, 40_000)
	return first + second, err
}

// What is left of a limited source after a copy is what was not copied.
func TestRecorder_limitedSources(t *testing.T) {
	t.Parallel()
	for _, length := range []string{"", "120", "200"} {
		w := &recorderFile{recorderWriter: newRecorderWriter()}
		if length != "" {
			w.header.Set("Content-Length", length)
		}
		r := newRecorder(w, recorderHow(10))
		limited := &io.LimitedReader{R: strings.NewReader(strings.Repeat("x", 200)), N: 120}
		n, err := r.writer.(io.ReaderFrom).ReadFrom(limited)
		require.NoError(t, err)
		require.EqualValues(t, 120, n)
		require.Zero(t, limited.N)
	}
}
