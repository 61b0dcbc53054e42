package guardhttp_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// An unwrapSelf is a writer whose Unwrap method returns itself, or another one that returns it.
type unwrapSelf struct {
	http.ResponseWriter
	other *unwrapSelf
}

func (w *unwrapSelf) Unwrap() http.ResponseWriter {
	if w.other != nil {
		return w.other
	}
	return w
}

// An unwrapFlusher is one that can flush without being unwrapped.
type unwrapFlusher struct{ *unwrapSelf }

func (w unwrapFlusher) FlushError() error {
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// An unwrapNew returns a new writer each time.
type unwrapNew struct{ http.ResponseWriter }

func (w unwrapNew) Unwrap() http.ResponseWriter { return &unwrapNew{w} }

// Unwrap methods that do not end do not stop a request: such a writer has no optional methods,
// also for an http.ResponseController of the handler.
func TestUnwrap_inACircle(t *testing.T) {
	t.Parallel()
	for name, wrap := range map[string]func(w http.ResponseWriter) http.ResponseWriter{
		"itself":            func(w http.ResponseWriter) http.ResponseWriter { return &unwrapSelf{w, nil} },
		"itself, a flusher": func(w http.ResponseWriter) http.ResponseWriter { return unwrapFlusher{&unwrapSelf{w, nil}} },
		"always a new one":  func(w http.ResponseWriter) http.ResponseWriter { return unwrapNew{w} },
		"two of each other": func(w http.ResponseWriter) http.ResponseWriter {
			one := &unwrapSelf{w, nil}
			one.other = &unwrapSelf{w, one}
			return one
		},
		"itself, behind others": func(w http.ResponseWriter) http.ResponseWriter {
			return unwrapOuter{unwrapOuter{&unwrapSelf{w, nil}}}
		},
	} {
		for does, handler := range map[string]http.HandlerFunc{
			"writes":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) },
			"nothing": func(http.ResponseWriter, *http.Request) {},
			"control": func(w http.ResponseWriter, _ *http.Request) {
				control := http.NewResponseController(w)
				_, _, err := control.Hijack()
				if err = errors.Join(err, control.Flush(), control.SetWriteDeadline(time.Now())); errors.Is(err, http.ErrNotSupported) {
					w.WriteHeader(http.StatusCreated)
				}
			},
			"gone at WithMaxHold": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		} {
			t.Run(name+"/"+does, func(t *testing.T) {
				t.Parallel()
				idempotent, err := guardhttp.New(lifeGuard(t, memory.New()), guardhttp.IdempotencyKey, idempotency.WithGlobalKeys(),
					idempotency.WithMaxHold(100*time.Millisecond))
				require.NoError(t, err)
				over := make(chan *httptest.ResponseRecorder, 1)
				h := idempotent(handler)
				go func() {
					w := httptest.NewRecorder()
					r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/", http.NoBody)
					r.Header.Set("Idempotency-Key", "k")
					h.ServeHTTP(wrap(w), r)
					over <- w
				}()
				select {
				case w := <-over:
					if does == "writes" || does == "control" {
						require.Equal(t, http.StatusCreated, w.Code)
					}
				case <-time.After(20 * time.Second):
					require.Fail(t, "the request hangs")
				}
			})
		}
	}
}

type unwrapOuter struct{ http.ResponseWriter }

func (w unwrapOuter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
