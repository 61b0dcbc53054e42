package guardhttp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/middleware/idempotency"
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
