package guardhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// An observed is a server whose requests are watched by two observers and by Track.
type observed struct {
	*lifeServer
	second  outcomeLog
	mu      sync.Mutex
	tracked []idempotency.Outcome
}

func serveObserved(t *testing.T, g *guard.Guard, h http.HandlerFunc, opts ...guardhttp.Option) *observed {
	t.Helper()
	o := new(observed)
	idempotent, seen := lifeIdempotent(t, g, h, append(opts, idempotency.WithObserver(func(context.Context, idempotency.Outcome) {}),
		idempotency.WithObserver(func(context.Context, idempotency.Outcome) { panic("of an observer") }),
		idempotency.WithObserver(o.second.observer()))...)
	o.lifeServer = lifeListen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r, outcome := track(r)
		defer func() {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.tracked = append(o.tracked, outcome())
		}()
		idempotent.ServeHTTP(w, r)
	}))
	o.log = seen
	return o
}

// ends returns the Outcome of a request that is answered with status.
func ends(status int, o idempotency.Outcome) idempotency.Outcome {
	o.Status = status
	return o
}

// take returns the only Outcome since the last call.
func (o *observed) take(t *testing.T) idempotency.Outcome {
	t.Helper()
	require.Eventually(t, func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return len(o.tracked) > 0
	}, lifeSoon, lifePoll)
	o.mu.Lock()
	defer o.mu.Unlock()
	require.Len(t, o.tracked, 1)
	for _, l := range []*outcomeLog{o.log, &o.second} {
		require.Equal(t, o.tracked, l.seen())
		l.all = nil
	}
	outcome := o.tracked[0]
	o.tracked = nil
	return outcome
}

// Row 41: one Outcome for each request, however it ends.
func TestObserver_isCalledOncePerRequest(t *testing.T) {
	t.Parallel()
	g := lifeGuard(t, memory.New())
	handler := func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Panic") != "" {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(http.StatusCreated)
		size := 10
		if r.Header.Get("X-Large") != "" {
			size = 100
		}
		fmt.Fprint(w, strings.Repeat("x", size))
	}
	s := serveObserved(t, g, handler, guardhttp.WithMaxBody(100), idempotency.WithMaxAnswer(50), idempotency.WithLease(guard.WithName("claims")),
		guardhttp.WithFingerprint(func(_ *http.Request, body []byte) ([]byte, error) {
			if string(body) == "strange" {
				return nil, errors.New("a strange body")
			}
			return body, nil
		}))
	const created, conflict = http.StatusCreated, http.StatusConflict
	for _, c := range []struct {
		method, key, body string
		headers           []string
		want              idempotency.Outcome
	}{
		{"POST", "k", "b", nil, ends(created, idempotency.Outcome{Result: idempotency.Ran, Kept: idempotency.KeepAnswer})},
		{"POST", "k", "b", nil, ends(created, idempotency.Outcome{Result: idempotency.Replayed})},
		{"POST", "k", "other", nil, ends(422, idempotency.Outcome{Result: idempotency.Mismatch})},
		{"GET", "k", "", nil, ends(0, idempotency.Outcome{Result: idempotency.Untouched})},
		{"POST", "k2", "b", []string{"X-Panic", "yes"}, ends(0, idempotency.Outcome{Result: idempotency.Ran, Aborted: true})},
		{"POST", "k2", "b", nil, ends(created, idempotency.Outcome{Result: idempotency.Ran, Kept: idempotency.KeepAnswer})},
		{"POST", "k3", "b", []string{"X-Large", "yes"}, ends(created, idempotency.Outcome{Result: idempotency.Ran, Kept: idempotency.KeepTombstone})},
		{"POST", "k3", "b", nil, ends(conflict, idempotency.Outcome{Result: idempotency.NotReplayable})},
		{"POST", "", "b", nil, ends(400, idempotency.Outcome{Result: idempotency.KeyMissing, Err: idempotency.ErrNoKey})},
		{"POST", `"`, "b", nil, ends(400, idempotency.Outcome{Result: idempotency.KeyInvalid})},
		{"POST", "k", "strange", nil, ends(400, idempotency.Outcome{Result: idempotency.BodyInvalid})},
		{"POST", "k", strings.Repeat("b", 101), nil, ends(413, idempotency.Outcome{Result: idempotency.BodyTooLarge})},
		{"POST", "k", "b", []string{"X-Tenant", ""}, ends(500, idempotency.Outcome{Result: idempotency.Refused})},
	} {
		r, err := http.NewRequestWithContext(t.Context(), c.method, s.URL, strings.NewReader(c.body))
		require.NoError(t, err)
		r.GetBody = nil // net/http would send a request with this header again on its own
		r.Header.Set("X-Tenant", "acme")
		if c.key != "" {
			r.Header.Set("Idempotency-Key", c.key)
		}
		for i := 0; i < len(c.headers); i += 2 {
			r.Header.Set(c.headers[i], c.headers[i+1])
		}
		response, err := s.client.Do(r)
		require.Equal(t, c.want.Aborted, err != nil)
		if err == nil {
			_, _ = io.Copy(io.Discard, response.Body)
			require.NoError(t, response.Body.Close())
			if c.want.Status != 0 {
				require.Equal(t, c.want.Status, response.StatusCode)
			}
		}
		o := s.take(t)
		require.Positive(t, o.Duration)
		require.Equal(t, c.want.Result == idempotency.Ran, o.Fence > 0, "%+v", o)
		if c.want.Err != nil {
			require.ErrorIs(t, o.Err, c.want.Err)
		}
		if c.want.Result == idempotency.Untouched {
			c.want.Status = o.Status
		}
		c.want.Name, c.want.Duration, c.want.Fence, c.want.Err, c.want.Label = "claims", o.Duration, o.Fence, o.Err, o.Label
		require.Equal(t, c.want, o)
	}
}

// lifeAway is a store that cannot be asked.
type lifeAway struct{ guard.Locker }

func (lifeAway) TryAcquire(_ context.Context, c driver.Claim) (driver.Answer, error) {
	return driver.Answer{}, &guard.StoreError{Backend: "away", Op: driver.OpAcquire, Key: c.Key, Kind: driver.KindClosed, Err: errors.New("away")}
}

// Row 41 for the results that need a middleware of their own.
func TestObserver_isCalledOnceForTheOtherResults(t *testing.T) {
	t.Parallel()
	g := lifeGuard(t, memory.New())
	away := lifeGuard(t, lifeAway{memory.New()})
	type outcome = idempotency.Outcome
	fine := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }
	silent := func(http.ResponseWriter, *http.Request) {}
	boom := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	for _, c := range []struct {
		guard   *guard.Guard
		handler http.HandlerFunc
		opts    []guardhttp.Option
		key     string
		want    []idempotency.Outcome // of one request after the other
	}{
		{
			g, fine,
			[]guardhttp.Option{idempotency.WithMode(idempotency.Reject)},
			"rejected",
			[]idempotency.Outcome{ends(200, outcome{Result: idempotency.Ran, Kept: idempotency.KeepTombstone}), ends(409, outcome{Result: idempotency.Done})},
		},
		{
			g, fine,
			[]guardhttp.Option{guardhttp.WithScope(func(*http.Request) (string, error) { return "", errors.New("no scope") })},
			"k",
			[]idempotency.Outcome{ends(500, outcome{Result: idempotency.Refused})},
		},
		{g, boom, []guardhttp.Option{idempotency.WithOptionalKey()}, "", []idempotency.Outcome{ends(0, outcome{Result: idempotency.Untouched, Aborted: true})}},
		{away, fine, nil, "k", []idempotency.Outcome{ends(503, outcome{Result: idempotency.Unavailable})}},
		{away, fine, []guardhttp.Option{idempotency.WithFailOpen()}, "k", []idempotency.Outcome{ends(200, outcome{Result: idempotency.Degraded})}},
		{away, boom, []guardhttp.Option{idempotency.WithFailOpen()}, "k", []idempotency.Outcome{ends(0, outcome{Result: idempotency.Degraded, Aborted: true})}},
		{away, fine, []guardhttp.Option{idempotency.WithShadow()}, "k", []idempotency.Outcome{ends(200, outcome{Result: idempotency.Unavailable, Shadow: true})}},
		{away, boom, []guardhttp.Option{idempotency.WithShadow()}, "k", []idempotency.Outcome{ends(0, outcome{Result: idempotency.Unavailable, Shadow: true, Aborted: true})}},
		{g, fine, []guardhttp.Option{patientShadow}, "shadow", []idempotency.Outcome{
			ends(200, outcome{Result: idempotency.Ran, Kept: idempotency.KeepAnswer, Shadow: true}), ends(200, outcome{Result: idempotency.Replayed, Shadow: true}),
		}},
		{g, silent, []guardhttp.Option{patientShadow}, "silent", []idempotency.Outcome{
			ends(200, outcome{Result: idempotency.Ran, Shadow: true}), ends(200, outcome{Result: idempotency.Ran, Shadow: true}),
		}},
		{
			g, fine,
			[]guardhttp.Option{guardhttp.WithProblems(func(http.ResponseWriter, *http.Request, guardhttp.Problem) { panic(http.ErrAbortHandler) })},
			"",
			[]idempotency.Outcome{ends(400, outcome{Result: idempotency.KeyMissing, Aborted: true})},
		},
	} {
		s := serveObserved(t, c.guard, c.handler, c.opts...)
		for _, want := range c.want {
			a := lifeSend(t.Context(), s.client, s.URL, c.key, "b")
			require.Equal(t, want.Aborted, a.err != nil)
			o := s.take(t)
			want.Name, want.Duration, want.Fence, want.Err, want.Label = "http", o.Duration, o.Fence, o.Err, o.Label
			require.Equal(t, want, o)
		}
	}
}

func TestTrack_saysNothingOfWhatDoesNotGetThere(t *testing.T) {
	t.Parallel()
	r, outcome := track(httptest.NewRequest(http.MethodPost, "/", nil))
	http.NotFound(httptest.NewRecorder(), r)
	require.Zero(t, outcome())
}

// http.TimeoutHandler answers while the handler still runs, and a log in front reads the Outcome.
func TestTrack_isSafeInFrontOfATimeoutHandler(t *testing.T) {
	t.Parallel()
	gate := newLifeGate(t)
	h, _ := counted(gate.pass)
	idempotent, seen := lifeIdempotent(t, lifeGuard(t, memory.New()), h)
	timeout := http.TimeoutHandler(idempotent, 20*time.Millisecond, "too slow")
	s := lifeListen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r, outcome := track(r)
		timeout.ServeHTTP(w, r)
		if outcome().Result != "" {
			return // a machine that is so slow shows nothing
		}
		gate.open()
		for outcome().Result == "" && t.Context().Err() == nil {
			time.Sleep(time.Millisecond) // reads while the Outcome is written
		}
	}))
	requireRan(t, s.post(t, "k", "b"), http.StatusServiceUnavailable, "too slow")
	seen.await(t, 1)
}
