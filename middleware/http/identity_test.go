package guardhttp_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// Each function of the user's, and the handler, reads the body from its beginning, also if an
// earlier one has replaced it.
func TestKeys_eachFunctionReadsTheBody(t *testing.T) {
	t.Parallel()
	type order struct{ Order, Account, Amount string }
	read := func(r *http.Request, replace bool) (o order, err error) {
		all, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(all, &o)
		}
		if replace {
			r.Body = io.NopCloser(strings.NewReader("replaced"))
		}
		return o, err
	}
	for name, replace := range map[string]bool{"read": false, "read and replaced": true} {
		t.Run(name, func(t *testing.T) {
			key := func(r *http.Request) (string, error) { o, err := read(r, replace); return o.Order, err }
			site := contentMemory(t).site(t, contentSetup{key: guardhttp.Join(key, key), handler: contentEcho, opts: []guardhttp.Option{
				guardhttp.WithScope(func(r *http.Request) (string, error) { o, err := read(r, replace); return o.Account, err }),
				guardhttp.WithFingerprint(func(r *http.Request, _ []byte) ([]byte, error) {
					o, err := read(r, replace)
					return []byte(o.Amount), err
				}),
			}})
			body := `{"order":"1","account":"a","amount":"1","note":"first"}`
			first := site.send(t, http.MethodPost, "/orders", body)
			require.Equal(t, body, first.body)
			site.send(t, http.MethodPost, "/orders", strings.Replace(body, "first", "again", 1)).requireReplayOf(t, first)
			requireProblem(t, site.send(t, http.MethodPost, "/orders", strings.Replace(body, `"amount":"1"`, `"amount":"1000"`, 1)), http.StatusUnprocessableEntity, idempotency.Mismatch)
			require.False(t, site.send(t, http.MethodPost, "/orders", strings.Replace(body, `"account":"a"`, `"account":"b"`, 1)).replayed())
			site.requireRan(t, 2)
		})
	}
}

// Hosts that a mux tells apart do not share keys. A route without a host has the same keys on all.
func TestKeys_belongToTheHostOfTheRoute(t *testing.T) {
	t.Parallel()
	answer := func(name string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) })
	}
	mux := func(wrap func(http.Handler) http.Handler) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("POST a.example.com/claims", wrap(answer("a")))
		mux.Handle("b.example.com/claims", wrap(answer("b")))
		mux.Handle("POST /claims", wrap(answer("other")))
		return mux
	}
	for name, mount := range map[string]func(idempotent func(http.Handler) http.Handler, h http.Handler) http.Handler{
		"inside": func(idempotent func(http.Handler) http.Handler, _ http.Handler) http.Handler { return mux(idempotent) },
		"outside": func(idempotent func(http.Handler) http.Handler, _ http.Handler) http.Handler {
			return idempotent(mux(func(h http.Handler) http.Handler { return h }))
		},
	} {
		t.Run(name, func(t *testing.T) {
			contentProtocols(t, func(t *testing.T, http2 bool) {
				site := contentMemory(t).site(t, contentSetup{http2: http2, mount: mount})
				send := func(host string) httpAnswer {
					return site.send(t, http.MethodPost, "/claims", "", contentHeader("Idempotency-Key", "k"), func(r *http.Request) { r.Host = host })
				}
				for host, want := range map[string]string{"a.example.com": "a", "b.example.com": "b", "c.example.com": "other"} {
					first := send(host)
					require.Equal(t, want, first.body)
					require.False(t, first.replayed())
					send(host).requireReplayOf(t, first)
				}
				require.True(t, send("d.example.com").replayed(), "this route has no host")
			})
		})
	}
}
