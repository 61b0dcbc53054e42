package guardhttp_test

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// A simpleGzip is the compressor of many tutorials: it leaves Content-Length as it is.
type simpleGzip struct {
	io.Writer
	http.ResponseWriter
}

func (w simpleGzip) Write(b []byte) (int, error) { return w.Writer.Write(b) }

func compressed(idempotent func(http.Handler) http.Handler, h http.Handler) http.Handler {
	inner := idempotent(h)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		defer z.Close()
		inner.ServeHTTP(simpleGzip{z, w}, r)
	})
}

// A replay and a problem do not announce a length that is not theirs behind a compressor.
func TestCompressor_outsideGetsNoWrongLength(t *testing.T) {
	t.Parallel()
	store := contentMemory(t)
	for _, size := range []int{5, 50_000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			contentProtocols(t, func(t *testing.T, http2 bool) {
				text := strings.Repeat("a", size)
				site := store.site(t, contentSetup{http2: http2, mount: compressed, handler: func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "text/plain")
					_, _ = io.WriteString(w, text)
				}})
				unpack := func(a httpAnswer) string {
					t.Helper()
					require.NoError(t, a.err)
					z, err := gzip.NewReader(strings.NewReader(a.body))
					require.NoError(t, err)
					all, err := io.ReadAll(z)
					require.NoError(t, err)
					return string(all)
				}
				key := fmt.Sprintf("%d-%t", size, http2)
				first := site.post(t, key, "b")
				requireSameText(t, text, unpack(first))
				again := site.post(t, key, "b")
				again.requireReplayOf(t, first)
				requireSameText(t, text, unpack(again))
				require.Contains(t, unpack(site.post(t, key, "another")), idempotency.Mismatch)
			})
		})
	}
}
