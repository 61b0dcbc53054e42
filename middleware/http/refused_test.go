package guardhttp_test

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/logging"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// A refusal that is the server's mistake is logged at warn, with its cause, by the Guard's hook.
func TestRefused_isLogged(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		key    guardhttp.KeyFunc
		scope  guardhttp.KeyFunc
		status int
		cause  string // or "" if it is the client's mistake
	}{
		"no scope":      {guardhttp.IdempotencyKey, func(*http.Request) (string, error) { return "", nil }, 500, "the scope is empty"},
		"scope fails":   {guardhttp.IdempotencyKey, func(*http.Request) (string, error) { return "", errors.New("no session") }, 500, "no session"},
		"key fails":     {func(*http.Request) (string, error) { return "", errors.New("no clock") }, tenant, 500, "no clock"},
		"misplaced key": {guardhttp.FromPathValue("id"), tenant, 500, "the middleware must be inside of the mux"},
		"bad key":       {guardhttp.IdempotencyKey, tenant, 400, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log contentLog
			hook, err := logging.New(slog.New(slog.NewTextHandler(&log, nil)))
			require.NoError(t, err)
			g := lifeGuard(t, memory.New(), guard.WithHook(hook))
			idempotent, err := guardhttp.New(g, c.key, guardhttp.WithScope(c.scope), idempotency.WithLease(guard.WithName("claim")))
			require.NoError(t, err)
			s := lifeListen(t, idempotent(http.NotFoundHandler()))
			key := "k"
			if c.cause == "" {
				key = "a b"
			}
			require.Equal(t, c.status, s.post(t, key, "").status)
			if c.cause == "" {
				require.Empty(t, log.String())
				return
			}
			for _, part := range []string{"level=WARN", `msg="work refused"`, "onerun.name=claim", "onerun.adapter=http", "onerun.result=refused", c.cause} {
				require.Contains(t, log.String(), part)
			}
			require.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
		})
	}
}

// http.TimeoutHandler inside of the middleware ends a request while its handler runs.
func TestTimeoutHandler_inside(t *testing.T) {
	t.Parallel()
	store := contentMemory(t)
	t.Run("directly", func(t *testing.T) {
		idempotent, err := guardhttp.New(store.guard, guardhttp.IdempotencyKey, idempotency.WithGlobalKeys())
		require.NoError(t, err)
		require.PanicsWithValue(t, "guardhttp: http.TimeoutHandler must be outside of the middleware: inside, it answers while its handler still runs",
			func() { idempotent(http.TimeoutHandler(http.NotFoundHandler(), time.Second, "")) })
	})
	t.Run("behind a mux", func(t *testing.T) {
		contentProtocols(t, func(t *testing.T, http2 bool) {
			var running, most atomic.Int64
			end := make(chan bool)
			slow := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				most.Store(max(most.Load(), running.Add(1)))
				<-end
				running.Add(-1)
			})
			refused := make(chan error, 9)
			hook := guard.Hook{Outcome: func(_ context.Context, o guard.Outcome) { refused <- o.Refused }}
			site := store.site(t, contentSetup{http2: http2, opts: []guardhttp.Option{idempotency.WithLease(guard.WithHook(hook))},
				mount: func(idempotent func(http.Handler) http.Handler, _ http.Handler) http.Handler {
					mux := http.NewServeMux()
					mux.Handle("/slow", http.TimeoutHandler(slow, 20*time.Millisecond, "too late"))
					mux.Handle("/busy", http.TimeoutHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
						_, _ = io.WriteString(w, "in time")
					}), lifeSoon, "too late"))
					return idempotent(mux)
				}})
			key := contentHeader("Idempotency-Key", rand.Text())
			first := site.send(t, http.MethodPost, "/slow", "", key)
			require.Equal(t, http.StatusServiceUnavailable, first.status)
			require.Equal(t, "too late", first.body)
			require.ErrorContains(t, site.outcome(t).Err, "http.TimeoutHandler is inside of the middleware")
			require.ErrorContains(t, lifeReceive(t, refused, "a report"), "put it outside")
			for range 3 {
				requireProblem(t, site.send(t, http.MethodPost, "/slow", "", key), http.StatusConflict, idempotency.NotReplayable)
				require.NoError(t, lifeReceive(t, refused, "a report"))
			}
			close(end)
			require.EqualValues(t, 1, most.Load())

			answered := site.send(t, http.MethodPost, "/busy", "", key)
			require.Equal(t, "in time", answered.body)
			require.NoError(t, lifeReceive(t, refused, "a report"))
			site.send(t, http.MethodPost, "/busy", "", key).requireReplayOf(t, answered)
		})
	})
}

// The handler's own status 503 is none of a TimeoutHandler, also if there is one outside.
func TestTimeoutHandler_outside(t *testing.T) {
	t.Parallel()
	site := contentMemory(t).site(t, contentSetup{
		handler: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
		mount: func(idempotent func(http.Handler) http.Handler, h http.Handler) http.Handler {
			return http.TimeoutHandler(idempotent(h), lifeSoon, "too late")
		}})
	key := rand.Text()
	for run := range 2 {
		require.Equal(t, http.StatusServiceUnavailable, site.post(t, key, "").status)
		require.NoError(t, site.outcome(t).Err)
		site.requireRan(t, run+1)
	}
}
