package guardhttp_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// patientShadow is for tests of a request's outcome, on a machine that may delay anything for
// longer than a quarter of a second.
var patientShadow = guardhttp.PatientShadow(lifeSoon)

// serveEcho serves a handler in shadow mode that answers with the number of its run and the
// request's body.
func serveEcho(t *testing.T, g *guard.Guard, shadow guardhttp.Option, opts ...guardhttp.Option) (*lifeServer, *atomic.Int64) {
	t.Helper()
	runs := new(atomic.Int64)
	s := lifeServe(t, g, func(w http.ResponseWriter, r *http.Request) {
		run := runs.Add(1)
		body, err := io.ReadAll(r.Body)
		if err != nil {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "run %d: %s", run, body)
	}, append(opts, shadow)...)
	return s, runs
}

// requireShadow checks the n-th Outcome of a request that ran in shadow mode.
func requireShadow(t *testing.T, s *lifeServer, n int, result idempotency.Result) idempotency.Outcome {
	t.Helper()
	o := s.log.await(t, n)[n-1]
	require.Equal(t, result, o.Result)
	require.True(t, o.Shadow)
	require.Equal(t, http.StatusCreated, o.Status)
	return o
}

func TestShadow_everyRequestRunsAndIsCounted(t *testing.T) {
	t.Parallel()
	s, runs := serveEcho(t, lifeGuard(t, memory.New()), patientShadow, idempotency.WithWait(time.Hour))
	for i, c := range []struct {
		key, body string
		result    idempotency.Result
		kept      idempotency.Keep
	}{
		{"k", "b", idempotency.Ran, idempotency.KeepAnswer},
		{"k", "b", idempotency.Replayed, idempotency.KeepNothing},
		{"k", "another", idempotency.Mismatch, idempotency.KeepNothing},
		{"k", "b", idempotency.Replayed, idempotency.KeepNothing},
		{"", "b", idempotency.KeyMissing, idempotency.KeepNothing},
		{"no\tkey", "b", idempotency.KeyInvalid, idempotency.KeepNothing},
		{"k2", "b", idempotency.Ran, idempotency.KeepAnswer},
	} {
		requireRan(t, s.post(t, c.key, c.body), http.StatusCreated, fmt.Sprintf("run %d: %s", i+1, c.body))
		o := requireShadow(t, s, i+1, c.result)
		require.Equal(t, c.kept, o.Kept)
		require.EqualValues(t, i+1, runs.Load())
	}
}

func TestShadow_bodiesPassWhole(t *testing.T) {
	t.Parallel()
	const most = 10 << 10
	s, _ := serveEcho(t, lifeGuard(t, memory.New()), patientShadow, guardhttp.WithMaxBody(most))
	requests := 0
	for name, chunked := range map[string]bool{"with": false, "without": true} {
		for size, result := range map[int]idempotency.Result{
			0: idempotency.Ran, most: idempotency.Ran, most + 1: idempotency.BodyTooLarge, 50 * most: idempotency.BodyTooLarge,
		} {
			body := strings.Repeat("0123456789", size/10+1)[:size]
			var source io.Reader = strings.NewReader(body)
			if chunked {
				source = struct{ io.Reader }{source}
			}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, source)
			require.NoError(t, err)
			r.Header.Set("X-Tenant", "acme")
			r.Header.Set("Idempotency-Key", fmt.Sprint(name, size))
			response, err := s.client.Do(r)
			require.NoError(t, err)
			all, err := io.ReadAll(response.Body)
			require.NoError(t, err)
			require.NoError(t, response.Body.Close())
			requests++
			requireSameText(t, fmt.Sprintf("run %d: %s", requests, body), string(all))
			requireShadow(t, s, requests, result)
		}
	}
}
