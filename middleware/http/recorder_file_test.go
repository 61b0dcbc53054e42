package guardhttp

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

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
