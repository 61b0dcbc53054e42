package guardhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// counted returns a handler that answers with the number of its run, after work, and the number of
// runs so far.
func counted(work func(ctx context.Context)) (http.HandlerFunc, *atomic.Int64) {
	runs := new(atomic.Int64)
	return func(w http.ResponseWriter, r *http.Request) {
		run := runs.Add(1)
		if work != nil {
			work(r.Context())
		}
		w.Header().Set("Location", fmt.Sprint("/things/", run))
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, "run ", run)
	}, runs
}

// Row 16: what a client believes to have whole must be in the store.
func TestLife_aClientHasNoWholeAnswerOfARunThatPanicked(t *testing.T) {
	t.Parallel()
	body := strings.Repeat("0123456789abcdef", 8<<10)
	runs := 0
	s := lifeServe(t, lifeGuard(t, memory.New()), func(w http.ResponseWriter, _ *http.Request) {
		runs++
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = io.WriteString(w, body)
		if runs == 1 {
			panic(http.ErrAbortHandler)
		}
	})
	require.Error(t, lifeSend(t.Context(), s.client, s.URL, "k", "b").err)
	requireRan(t, s.post(t, "k", "b"), http.StatusOK, body)
	requireReplay(t, s.post(t, "k", "b"), http.StatusOK, body)
}

// lifeWrites are the ways to write an answer.
var lifeWrites = map[string]func(w http.ResponseWriter, body string) error{
	"Write": func(w http.ResponseWriter, body string) error {
		for part := []byte(body); len(part) > 0; part = part[min(len(part), 8<<10):] {
			n := min(len(part), 8<<10)
			if written, err := w.Write(part[:n]); err != nil || written != n {
				return fmt.Errorf("wrote %d of %d: %w", written, n, err)
			}
		}
		return nil
	},
	"WriteString": func(w http.ResponseWriter, body string) error {
		n, err := io.WriteString(w, body)
		if err == nil && n != len(body) {
			err = io.ErrShortWrite
		}
		return err
	},
	"ReadFrom": func(w http.ResponseWriter, body string) error {
		n, err := io.Copy(w, readerOnly(body))
		if err == nil && n != int64(len(body)) {
			err = io.ErrShortWrite
		}
		return err
	},
	"Write and ReadFrom": func(w http.ResponseWriter, body string) error {
		last := max(0, len(body)-1)
		_, err := io.WriteString(w, body[:last])
		if err != nil {
			return err
		}
		_, err = io.Copy(w, readerOnly(body[last:]))
		return err
	},
}

// readerOnly returns a Reader and no more, so that it is the writer that copies.
func readerOnly(s string) io.Reader { return struct{ io.Reader }{strings.NewReader(s)} }

type lifeRequestContext struct{}

// Row 17.
func TestLife_aHandlerOutlivesItsClient(t *testing.T) {
	t.Parallel()
	// more than net/http and the kernel buffer for a client that has gone
	body := strings.Repeat("0123456789abcdef", 32<<10)
	rdb := redistest.Start(t).Client(t)
	g := lifeGuard(t, single.New(rdb), guard.WithTTL(time.Minute))
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2"} {
		for name, write := range lifeWrites {
			for _, declared := range []bool{false, true} {
				for _, early := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s %s declared=%v early=%v", protocol, name, declared, early), func(t *testing.T) {
						t.Parallel()
						testOutliving(t, g, protocol, body, declared, early, write)
					})
				}
			}
		}
	}
}

// testOutliving has a client leave before its answer comes, or, early, while it comes.
func testOutliving(t *testing.T, g *guard.Guard, protocol, body string, declared, early bool, write func(http.ResponseWriter, string) error) {
	begun, failed := make(chan struct{}, 1), make(chan error, 1)
	idempotent, seen := lifeIdempotent(t, g, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Answer", "yes")
		if declared {
			w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		}
		rest := body
		if early {
			w.WriteHeader(http.StatusCreated)
			if err := write(w, body[:16<<10]); err != nil {
				failed <- err
				return
			}
			rest = body[16<<10:]
		}
		begun <- struct{}{}
		request := r.Context().Value(lifeRequestContext{}).(context.Context)
		select {
		case <-request.Done():
		case <-t.Context().Done():
		}
		if !early {
			w.WriteHeader(http.StatusCreated)
		}
		err := write(w, rest)
		failed <- errors.Join(err, r.Context().Err())
	})
	s := lifeListenTo(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		idempotent.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), lifeRequestContext{}, r.Context())))
	}), protocol == "HTTP/2")
	key := strings.ReplaceAll(t.Name(), " ", "-")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first := s.start(ctx, key, "b")
	lifeReceive(t, begun, "a run")
	cancel()
	require.Error(t, lifeReceive(t, first, "the end of a request").err)
	require.NoError(t, lifeReceive(t, failed, "the end of a run"))
	o := seen.await(t, 1)[0]
	require.NoError(t, o.Err)
	require.Equal(t, idempotency.Ran, o.Result)
	require.Equal(t, idempotency.KeepAnswer, o.Kept)
	require.Equal(t, http.StatusCreated, o.Status)

	a := s.post(t, key, "b")
	requireReplay(t, a, http.StatusCreated, body)
	require.Equal(t, "yes", a.header.Get("X-Answer"))
	require.Empty(t, failed, "it has not run again")
}
