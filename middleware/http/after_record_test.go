package guardhttp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// lastingOutage is longer than a lease.
const lastingOutage = 3 * outageTTL

// endOutages are what can happen to the store and to the lease at the end of a run. begin is
// called in the first run, with what ends the outage after a time.
var endOutages = map[string]struct {
	begin func(s *outageSite, away *atomic.Bool, r *http.Request)
	lasts time.Duration
	err   error // of the Outcome, if something was to be kept
}{
	"none":                          {begin: func(*outageSite, *atomic.Bool, *http.Request) {}},
	"away for less than the lease":  {begin: func(_ *outageSite, away *atomic.Bool, _ *http.Request) { away.Store(true) }, lasts: outageTTL / 3},
	"away for longer than it lasts": {begin: func(_ *outageSite, away *atomic.Bool, _ *http.Request) { away.Store(true) }, lasts: lastingOutage, err: guard.ErrMarker},
	"lost": {begin: func(s *outageSite, _ *atomic.Bool, r *http.Request) {
		for _, call := range s.Calls() {
			_, _ = s.Inner.Release(context.Background(), call.Claim, driver.After{})
		}
		<-r.Context().Done()
	}, err: guard.ErrLost},
}

// endExits are ways for a handler to end. answer is what the client gets of the n-th run, without
// an outage; kept means that it is kept.
var endExits = map[string]struct {
	end    func(w http.ResponseWriter, run int64)
	status int
	body   string // with %d for the number of the run
	kept   bool
}{
	"an answer": {
		end: func(w http.ResponseWriter, run int64) {
			w.Header().Set("X-Run", "1")
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, "run ", run)
		},
		status: 201, body: "run %d", kept: true,
	},
	"an answer in parts": {end: func(w http.ResponseWriter, run int64) {
		_, _ = io.WriteString(w, "run")
		_, _ = io.Copy(w, strings.NewReader(fmt.Sprint(" ", run)))
	}, status: 200, body: "run %d", kept: true},
	"a length": {
		end: func(w http.ResponseWriter, run int64) {
			w.Header().Set("Content-Length", "5")
			fmt.Fprint(w, "run ", run)
		},
		status: 200, body: "run %d", kept: true,
	},
	"no body": {end: func(w http.ResponseWriter, _ int64) { w.WriteHeader(http.StatusNoContent) }, status: 204, kept: true},
	"nothing": {end: func(http.ResponseWriter, int64) {}, status: 200, kept: true},
	"a failure": {end: func(w http.ResponseWriter, run int64) {
		http.Error(w, fmt.Sprint("run ", run), http.StatusInternalServerError)
	}, status: 500, body: "run %d\n"},
	"a panic":                  {end: func(http.ResponseWriter, int64) { panic(errShopClosed) }, status: 500, body: "recovered the shop is closed"},
	"the end of its goroutine": {end: func(http.ResponseWriter, int64) { runtime.Goexit() }, status: 500, body: "recovered <nil>"},
	"a panic in its answer": {end: func(w http.ResponseWriter, run int64) {
		w.Header().Set("Location", "/things/1")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, "run ", run)
		panic(errShopClosed)
	}, status: 500, body: "recovered the shop is closed"},
}

var errShopClosed = errors.New("the shop is closed")

// recovered is a middleware in front that answers in place of a handler that has panicked, or has
// ended its goroutine.
func recovered(h http.Handler, w http.ResponseWriter, r *http.Request) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		returned := false
		defer func() {
			if value := recover(); !returned {
				w.WriteHeader(http.StatusInternalServerError)
				_, _ = fmt.Fprint(w, "recovered ", value)
			}
		}()
		h.ServeHTTP(w, r)
		returned = true
	}()
	<-over
}

// What the client gets at each end of a run, whatever happens to the store at that moment, with
// the option and without it: never an answer whose retry gets another one.
func TestAnswerAfterRecord_eachEndOfARun(t *testing.T) {
	t.Parallel()
	for outage, o := range endOutages {
		for exit, e := range endExits {
			for mode, opts := range map[string][]guardhttp.Option{
				"at once": nil, "after the record": {idempotency.WithAnswerAfterRecord()},
				"after the tombstone": {idempotency.WithAnswerAfterRecord(), idempotency.WithMode(idempotency.Reject)},
			} {
				t.Run(fmt.Sprint(exit, ", ", outage, ", ", mode), func(t *testing.T) {
					var problem error
					opts := append(opts, guardhttp.WithProblems(func(w http.ResponseWriter, r *http.Request, p guardhttp.Problem) {
						problem = p.Err
						p.ServeHTTP(w, r)
					}))
					inOutage(t, func(t *testing.T, s *outageSite) {
						var away atomic.Bool
						s.breakWhile(&away)
						s.handle = func(w http.ResponseWriter, r *http.Request, run int64) {
							if run == 1 {
								o.begin(s, &away, r)
								time.AfterFunc(o.lasts, func() { away.Store(false) })
							}
							e.end(w, run)
						}
						send := func() (*httptest.ResponseRecorder, idempotency.Outcome) {
							r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader("b"))
							r.Header.Set("Idempotency-Key", "k")
							w := httptest.NewRecorder()
							r, outcome := track(r)
							recovered(s.handler, w, r)
							return w, outcome()
						}
						text := func(run int) string { return strings.ReplaceAll(e.body, "%d", fmt.Sprint(run)) }
						first, outcome := send()
						require.Equal(t, idempotency.Ran, outcome.Result)
						unrecorded := e.kept && o.err != nil
						held := mode != "at once"
						switch {
						case exit == "nothing" && outage == "lost":
							require.Contains(t, first.Body.String(), `"code":"given_up"`)
							return
						case unrecorded && held:
							require.Equal(t, http.StatusServiceUnavailable, first.Code)
							require.Contains(t, first.Body.String(), `"code":"unrecorded"`)
							require.Equal(t, "unrecorded", first.Header().Get("Idempotency-Refused"))
							require.NotEmpty(t, first.Header().Get("Retry-After"))
							require.Empty(t, first.Header().Get("X-Run"), "it is of the answer that was not sent")
							require.Equal(t, http.StatusServiceUnavailable, outcome.Status)
							require.ErrorIs(t, problem, o.err)
							require.True(t, guard.Ran(problem))
						default:
							require.Equal(t, e.status, first.Code, first.Body)
							require.Equal(t, text(1), first.Body.String())
							require.Empty(t, first.Header().Get("Location"))
						}
						if unrecorded {
							require.ErrorIs(t, outcome.Err, o.err)
							require.True(t, guard.Ran(outcome.Err))
							require.Equal(t, idempotency.KeepNothing, outcome.Kept)
						}

						time.Sleep(o.lasts)
						time.Sleep(5 * time.Second) // the Guard goes on trying
						again, outcome := send()
						if e.kept && o.err == nil {
							if mode == "after the tombstone" {
								require.Equal(t, http.StatusConflict, again.Code)
								return
							}
							require.Equal(t, idempotency.Replayed, outcome.Result)
							require.Equal(t, text(1), again.Body.String())
							return
						}
						require.Equal(t, idempotency.Ran, outcome.Result)
						require.EqualValues(t, 2, s.runs.Load())
						if e.kept {
							require.Equal(t, text(2), again.Body.String())
						}
					}, opts...)
				})
			}
		}
	}
}

// breakWhile makes the store answer nothing while it is away.
func (s *outageSite) breakWhile(away *atomic.Bool) {
	s.OnRenew = func(ctx context.Context, _ int, _ driver.Claim) (bool, error) {
		if away.Load() {
			return false, guardtest.Hang(ctx)
		}
		return false, guardtest.ErrUnscripted
	}
	s.OnRelease = func(ctx context.Context, _ int, _ driver.Claim, _ driver.After) (bool, error) {
		if away.Load() {
			return false, guardtest.Hang(ctx)
		}
		return false, guardtest.ErrUnscripted
	}
}

// A hijackable is a ResponseRecorder whose connection can be taken over.
type hijackable struct {
	*httptest.ResponseRecorder
	hijacked bool
}

func (h *hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	h.hijacked = true
	client, server := net.Pipe()
	_ = client.Close()
	return server, bufio.NewReadWriter(bufio.NewReader(server), bufio.NewWriter(server)), nil
}

// What cannot be recorded cannot be held back either, and neither can what the handler flushes:
// the client has it before the handler returns.
func TestAnswerAfterRecord_whatCannotBeHeldBack(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(w http.ResponseWriter, r *http.Request){
		"flushed": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "a"); w.(http.Flusher).Flush() },
		"flushed by control": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "a")
			_ = http.NewResponseController(w).Flush()
		},
		"events": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "a")
		},
		"trailers": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Sum")
			_, _ = io.WriteString(w, "a")
		},
		"too large": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, strings.Repeat("a", 90))
			_, _ = io.WriteString(w, strings.Repeat("a", 20))
		},
		"too large, copied": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.Copy(w, strings.NewReader(strings.Repeat("a", 110)))
		},
		"too large, announced": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "110")
			_, _ = io.WriteString(w, "a")
		},
		"a stream, says the handler": func(w http.ResponseWriter, r *http.Request) {
			idempotency.SetKeep(r.Context(), idempotency.KeepTombstone)
			_, _ = io.WriteString(w, "a")
		},
		"an informational status": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusEarlyHints) },
		"taken over": func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_ = conn.Close()
			}
		},
	} {
		for outage, away := range map[string]bool{"none": false, "away": true} {
			t.Run(fmt.Sprint(name, ", ", outage), func(t *testing.T) {
				inOutage(t, func(t *testing.T, s *outageSite) {
					var gone atomic.Bool
					s.breakWhile(&gone)
					w := &hijackable{ResponseRecorder: httptest.NewRecorder()}
					s.handle = func(answer http.ResponseWriter, r *http.Request, _ int64) {
						begin(answer, r)
						require.True(t, w.Body.Len() > 0 || w.hijacked || w.Code == http.StatusEarlyHints)
						gone.Store(away)
					}
					r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
					r.Header.Set("Idempotency-Key", "k")
					r, outcome := track(r)
					s.handler.ServeHTTP(w, r)
					o := outcome()
					require.Equal(t, idempotency.Ran, o.Result)
					gone.Store(false)
					time.Sleep(outageTTL) // for the last release
					if name == "an informational status" {
						return // what follows it is held back
					}
					require.NotEqual(t, http.StatusServiceUnavailable, w.Code)
					require.Equal(t, away, errors.Is(o.Err, guard.ErrMarker))
				}, idempotency.WithAnswerAfterRecord(), idempotency.WithMaxAnswer(100))
			})
		}
	}
}

// While an answer is held back, the store has no record of it, and the client nothing of it.
func TestAnswerAfterRecord_sendsWhenTheRecordIsThere(t *testing.T) {
	t.Parallel()
	inOutage(t, func(t *testing.T, s *outageSite) {
		w := httptest.NewRecorder()
		w.Header().Set("X-Front", "1")
		s.handle = func(answer http.ResponseWriter, _ *http.Request, _ int64) {
			answer.Header().Set("X-Handler", "1")
			answer.Header().Del("X-Front")
			answer.WriteHeader(http.StatusAccepted)
			answer.Header().Set("X-Late", "1")
			_, _ = io.WriteString(answer, "some")
			require.Empty(t, w.Body.String())
		}
		s.OnRelease = func(context.Context, int, driver.Claim, driver.After) (bool, error) {
			require.Empty(t, w.Body.String())
			return false, guardtest.ErrUnscripted
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
		r.Header.Set("Idempotency-Key", "k")
		s.handler.ServeHTTP(w, r)
		answer := w.Result()
		defer answer.Body.Close()
		require.Equal(t, http.StatusAccepted, answer.StatusCode)
		require.Equal(t, "some", w.Body.String())
		require.Equal(t, "1", answer.Header.Get("X-Handler"))
		require.Empty(t, answer.Header.Get("X-Front"))
	}, idempotency.WithAnswerAfterRecord())
}

// It cannot work where nothing is kept.
func TestAnswerAfterRecord_isRefusedWhereItCannotWork(t *testing.T) {
	t.Parallel()
	g := lifeGuard(t, memory.New(), guard.WithNamespace("test"))
	for name, opt := range map[string]guardhttp.Option{
		"Exclusive": idempotency.WithMode(idempotency.Exclusive), "WithFailOpen": idempotency.WithFailOpen(),
	} {
		_, err := guardhttp.New(g, guardhttp.IdempotencyKey, idempotency.WithGlobalKeys(), idempotency.WithAnswerAfterRecord(), opt)
		var setting *guard.SettingError
		require.ErrorAs(t, err, &setting, name)
		require.Equal(t, "WithAnswerAfterRecord", setting.Setting)
		require.Contains(t, setting.Reason, name)
	}
}
