package frameworks_test

import (
	"compress/gzip"
	"context"
	"crypto/rand"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzhttp"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

func newMiddleware(t *testing.T) middleware {
	t.Helper()
	g, err := guard.New(memory.New(), guard.WithNamespace("test"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
	idempotent, err := guardhttp.New(g, guardhttp.IdempotencyKey, idempotency.WithGlobalKeys())
	require.NoError(t, err)
	return idempotent
}

// A compressor belongs outside: what is recorded is plain, and each client gets the coding that it
// has asked for. Inside, the coded bytes are recorded, and every client gets those.
func TestCompress_order(t *testing.T) {
	t.Parallel()
	plain := strings.Repeat("a text that is worth compressing. ", 500)
	var handler http.HandlerFunc = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, plain)
	}
	for name, c := range map[string]struct {
		mount func(idempotent middleware) http.Handler
		codes map[string]string // what a retry that asks for one coding gets
	}{
		"outside": {func(idempotent middleware) http.Handler { return gzhttp.GzipHandler(idempotent(handler)) },
			map[string]string{"gzip": "gzip", "identity": ""}},
		"inside": {func(idempotent middleware) http.Handler { return idempotent(gzhttp.GzipHandler(handler)) },
			map[string]string{"gzip": "gzip", "identity": "gzip"}},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(c.mount(newMiddleware(t)))
			t.Cleanup(server.Close)
			key := rand.Text()
			send := func(coding string) (status int, header http.Header, text string) {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, nil)
				require.NoError(t, err)
				r.Header.Set("Idempotency-Key", key)
				r.Header.Set("Accept-Encoding", coding) // which also keeps the client from decoding
				response, err := server.Client().Do(r)
				require.NoError(t, err)
				defer response.Body.Close()
				var body io.Reader = response.Body
				if response.Header.Get("Content-Encoding") == "gzip" {
					body, err = gzip.NewReader(body)
					require.NoError(t, err)
				}
				all, err := io.ReadAll(body)
				require.NoError(t, err)
				return response.StatusCode, response.Header, string(all)
			}
			_, first, text := send("gzip")
			require.Equal(t, "gzip", first.Get("Content-Encoding"))
			require.Equal(t, plain, text)
			for asked, got := range c.codes {
				status, again, text := send(asked)
				require.Equal(t, "true", again.Get("Idempotency-Replayed"))
				require.Equal(t, http.StatusCreated, status)
				require.Equal(t, got, again.Get("Content-Encoding"), "asked for %s", asked)
				require.Equal(t, first.Get("Content-Type"), again.Get("Content-Type"))
				require.Equal(t, plain, text)
			}
		})
	}
}
