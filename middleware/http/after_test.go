package guardhttp_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// answerAfter is a framework whose handlers return an error, which it answers after all middleware
// has returned: through the writer that the handler had, as echo does, or through its own.
func answerAfter(own bool) func(idempotent func(http.Handler) http.Handler, h http.Handler) http.Handler {
	return func(idempotent func(http.Handler) http.Handler, h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			writer := w
			idempotent(http.HandlerFunc(func(inner http.ResponseWriter, r *http.Request) {
				if !own {
					writer = inner
				}
				h.ServeHTTP(inner, r)
			})).ServeHTTP(w, r)
			if writer == w && !own {
				return // a replay: the handler has not run
			}
			if own && w.Header().Get("Idempotency-Replayed") != "" {
				return
			}
			writer.Header().Set("Content-Type", "application/json")
			writer.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(writer, `{"message":"the handler has failed"}`)
		})
	}
}

// A handler that returns without having written answers with an empty 200. If that is kept,
// another answer comes too late, so that the client gets what a retry gets. If nothing is kept,
// the framework's answer reaches the client.
func TestAfter_theFirstAnswerIsTheRecord(t *testing.T) {
	t.Parallel()
	store := contentMemory(t)
	for name, c := range map[string]struct {
		opts []guardhttp.Option
		keep idempotency.Keep
		kept bool
	}{
		"default":            {keep: idempotency.KeepAnswer, kept: true},
		"tombstone":          {keep: idempotency.KeepTombstone, kept: true},
		"reject":             {keep: idempotency.KeepAnswer, opts: []guardhttp.Option{idempotency.WithMode(idempotency.Reject)}, kept: true},
		"nothing":            {keep: idempotency.KeepNothing},
		"exclusive":          {keep: idempotency.KeepAnswer, opts: []guardhttp.Option{idempotency.WithMode(idempotency.Exclusive)}},
		"shadow":             {keep: idempotency.KeepAnswer, opts: []guardhttp.Option{patientShadow}},
		"policy: no answers": {keep: idempotency.KeepAnswer, opts: []guardhttp.Option{guardhttp.WithPolicy(func(int, http.Header) bool { return false })}},
	} {
		for behind, hide := range streamsWriters {
			for _, own := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, own writer %t", name, behind, own), func(t *testing.T) {
					contentProtocols(t, func(t *testing.T, http2 bool) {
						mount := answerAfter(own)
						site := store.site(t, contentSetup{http2: http2, opts: c.opts,
							handler: func(_ http.ResponseWriter, r *http.Request) {
								if c.keep != idempotency.KeepAnswer {
									idempotency.SetKeep(r.Context(), c.keep)
								}
							},
							mount: func(idempotent func(http.Handler) http.Handler, h http.Handler) http.Handler {
								return hide(mount(idempotent, h))
							}})
						key := rand.Text()
						first, err := site.try(t, http.MethodPost, "/things", "", contentHeader("Idempotency-Key", key))
						if !c.kept {
							require.NoError(t, err)
							require.Equal(t, http.StatusInternalServerError, first.status)
							require.JSONEq(t, `{"message":"the handler has failed"}`, first.body)
							site.post(t, key, "")
							site.requireRan(t, 2)
							return
						}
						// Over HTTP/2, what a framework writes to its own writer breaks the stream.
						if err == nil && first.err == nil {
							require.Equal(t, http.StatusOK, first.status)
							require.Empty(t, first.body)
						}
						if own {
							return // this framework would also write after a refusal
						}
						again := site.post(t, key, "")
						if name == "default" {
							again.requireReplayOf(t, first)
						} else {
							require.Equal(t, http.StatusConflict, again.status)
						}
						site.requireRan(t, 1)
					})
				})
			}
		}
	}
}

// A goroutine of the handler that writes after the middleware has answered in its place, or after
// a panic, neither changes that answer nor ends the process.
func TestAfter_aGoroutineOfTheHandlerWritesNothing(t *testing.T) {
	t.Parallel()
	store := contentMemory(t)
	for name, end := range map[string]func(ctx context.Context){
		"its time is up": func(ctx context.Context) { <-ctx.Done() },
		"it panics":      func(context.Context) { panic(http.ErrAbortHandler) },
		"it returns":     func(context.Context) {},
	} {
		t.Run(name, func(t *testing.T) {
			contentProtocols(t, func(t *testing.T, http2 bool) {
				over, done := make(chan struct{}), make(chan error, 5)
				site := store.site(t, contentSetup{http2: http2, opts: []guardhttp.Option{idempotency.WithMaxHold(50 * time.Millisecond)},
					handler: func(w http.ResponseWriter, r *http.Request) {
						go func() {
							<-over
							w.Header().Set("X-Late", "yes")
							w.WriteHeader(http.StatusCreated)
							_, err := io.WriteString(w, "late")
							done <- err
							_, err = w.Write([]byte("late"))
							done <- err
							_, err = io.Copy(w, strings.NewReader("late"))
							done <- err
							done <- http.NewResponseController(w).Flush()
							_, _, err = http.NewResponseController(w).Hijack()
							done <- err
						}()
						end(r.Context())
					}})
				first, _ := site.try(t, http.MethodPost, "/things", "", contentHeader("Idempotency-Key", rand.Text()))
				if name == "its time is up" {
					requireProblem(t, first, http.StatusServiceUnavailable, "given_up")
				}
				require.Empty(t, first.header["X-Late"])
				site.outcome(t)
				close(over)
				for range 5 {
					require.Error(t, lifeReceive(t, done, "the goroutine's end"))
				}
			})
		})
	}
}
