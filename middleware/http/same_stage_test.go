package guardhttp_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// What a client has seen of a play.
type streamsSeen struct {
	raw           string // of HTTP/1.1, without the date
	informational string
	answer        httpAnswer
	failed        bool
	said          []string // by the steps
	logged        int      // lines of net/http's log
	outcome       int      // the status that observers are notified of
}

// A streamsStage plays handlers behind a server.
type streamsStage struct {
	play     atomic.Pointer[streamsPlay]
	finished chan []string // the handler has
	returned chan bool     // all of it has
	outcomes chan int      // their statuses, with the middleware
	http2    bool
	address  string
	client   *http.Client
	log      *contentLog
}

func (s *streamsStage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var said []string
	defer func() { s.finished <- said }()
	said = append(said, streamsInterfaces(w))
	for _, step := range *s.play.Load() {
		said = append(said, step.do(w, r))
	}
}

var streamsDate = regexp.MustCompile(`(?i)\r\nDate: [^\r]*`)

// perform sends a request. The handler plays the play, or if runs is false, the middleware
// answers.
func (s *streamsStage) perform(t *testing.T, play streamsPlay, key string, runs bool) streamsSeen {
	t.Helper()
	s.play.Store(&play)
	logged := strings.Count(s.log.String(), "\n")
	var seen streamsSeen
	body := "" // net/http resets the connection if a body is not read
	if play.any(func(step streamsStep) bool { return step.name == streamsRead.name }) {
		body = "a body"
	}
	if s.http2 {
		a, err := contentSend(t, s.client, http.MethodPost, s.address+"/play", body, contentHeader("Idempotency-Key", key), func(r *http.Request) {
			*r = *r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
				Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
					seen.informational += fmt.Sprint(code, " ")
					return nil
				}}))
		})
		seen.answer, seen.failed = a, err != nil || a.err != nil
	} else {
		conn := contentDial(t, s.address)
		conn.say(t, "POST /play HTTP/1.1", "Host: a", "X-Tenant: acme", "Idempotency-Key: "+key,
			fmt.Sprint("Content-Length: ", len(body)), "Connection: close", "")
		_, err := io.WriteString(conn, body)
		require.NoError(t, err)
		all, err := io.ReadAll(conn.in)
		seen.failed = err != nil
		seen.raw = streamsDate.ReplaceAllString(string(all), "")
		conn.in.Reset(bytes.NewReader(all))
		for {
			a, err := contentReceive(conn.in)
			if err != nil {
				seen.failed = true
				break
			}
			if a.status < 200 && a.status != http.StatusSwitchingProtocols {
				seen.informational += fmt.Sprint(a.status, " ")
				continue
			}
			seen.answer = a
			rest, _ := io.ReadAll(conn.in)
			seen.failed = seen.failed || a.err != nil || len(rest) > 0
			break
		}
		_ = conn.Close()
	}
	select {
	case <-s.returned: // the client may have a streamed answer before that
	case <-time.After(lifeSoon):
		require.Fail(t, "the request has not ended", "%s", play)
	}
	if s.outcomes != nil {
		seen.outcome = <-s.outcomes
	}
	if runs {
		select {
		case seen.said = <-s.finished:
		case <-time.After(lifeSoon):
			require.Fail(t, "the handler has not run", "%s: %v", play, seen.answer)
		}
		seen.logged = strings.Count(s.log.String(), "\n") - logged
	}
	delete(seen.answer.header, "Date")
	return seen
}

// streamsStages returns a stage without the middleware, and one with it.
func streamsStages(t *testing.T, g *guard.Guard, http2 bool, behind func(http.Handler) http.Handler, opts ...guardhttp.Option) (bare, ours *streamsStage) {
	t.Helper()
	stage := func(wrap func(http.Handler) http.Handler) *streamsStage {
		s := &streamsStage{finished: make(chan []string, 1), returned: make(chan bool, 1), http2: http2, log: new(contentLog)}
		all := wrap(s)
		s.address, s.client = contentServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer func() { s.returned <- true }()
			all.ServeHTTP(w, r)
		}), http2, s.log)
		return s
	}
	outcomes := make(chan int, 1)
	idempotent, err := guardhttp.New(g, guardhttp.IdempotencyKey, append(opts, guardhttp.WithScope(tenant), guardhttp.WithPolicy(keepAll),
		idempotency.WithObserver(func(_ context.Context, o idempotency.Outcome) { outcomes <- o.Status }))...)
	require.NoError(t, err)
	bare, ours = stage(behind), stage(func(h http.Handler) http.Handler { return behind(idempotent(h)) })
	ours.outcomes = outcomes
	return bare, ours
}

// streamsRequireSame plays without and with the middleware.
func streamsRequireSame(t *testing.T, bare, ours *streamsStage, play streamsPlay, key string) (got streamsSeen) {
	t.Helper()
	what := play.String()
	want := bare.perform(t, play, key, true)
	got = ours.perform(t, play, key, true)
	require.Equal(t, want.said, got.said, "%s: the results of the handler's calls", what)
	require.Equal(t, want.informational, got.informational, what)
	require.Equal(t, want.failed, got.failed, "%s: %v, %v", what, want.answer.err, got.answer.err)
	require.Equal(t, want.answer.status, got.answer.status, what)
	if !got.failed && !play.any(func(s streamsStep) bool { return s.hijacks }) {
		require.Equal(t, got.answer.status, got.outcome, "%s: the status of the Outcome", what)
	}
	require.Equal(t, want.answer.body, got.answer.body, what)
	copies := play.any(func(s streamsStep) bool { return s.copies })
	// after which a trailer that was not announced finds a chunk to stand behind, or does not
	if !copies {
		require.Equal(t, want.answer.trailer, got.answer.trailer, what)
	}
	if copies && want.answer.length < 0 && got.answer.length == int64(len(want.answer.body)) {
		// net/http sends the header of a copy before it has seen the end. While we record, it may
		// know the length by that time.
		got.answer.length = want.answer.length
		got.answer.header.Del("Content-Length")
	}
	require.Equal(t, want.answer.length, got.answer.length, what)
	require.Equal(t, want.answer.close, got.answer.close, what)
	require.Equal(t, want.answer.header, got.answer.header, what)
	if !bare.http2 {
		require.Equal(t, want.logged, got.logged, "%s: net/http logs\n%s\nwithout us, and\n%s\nwith us", what, bare.log, ours.log)
	}
	if !copies && play.any(func(s streamsStep) bool { return s.hijacks }) {
		require.Equal(t, want.raw, got.raw, what)
	}
	return got
}

// streamsRequireReplay plays without and with the middleware, and once more for the retry.
func streamsRequireReplay(t *testing.T, bare, ours *streamsStage, play streamsPlay) {
	t.Helper()
	key := rand.Text()
	streamsRequireRetry(t, ours, play, key, streamsRequireSame(t, bare, ours, play, key))
}

// streamsRequireRetry plays for the retry of a request that has got an answer.
func streamsRequireRetry(t *testing.T, ours *streamsStage, play streamsPlay, key string, got streamsSeen) {
	t.Helper()
	what := play.String()
	again := ours.perform(t, play, key, false)
	require.Empty(t, ours.finished, "%s: it ran again", what)
	require.False(t, again.failed, what)
	require.Empty(t, again.informational, what)
	if !again.answer.replayed() {
		requireProblem(t, again.answer, http.StatusConflict, idempotency.NotReplayable)
		return
	}
	// an answer that was wrong is not made right by a replay, unless it has no body to be wrong
	// about
	if got.failed {
		require.Contains(t, []int{http.StatusNoContent, http.StatusNotModified}, again.answer.status,
			"%s: %q is replayed, and the client has got %q, %v", what, again.answer.body, got.answer.body, got.answer.err)
	}
	require.Empty(t, got.answer.trailer, "%s: an answer with trailers is not replayed", what)
	require.GreaterOrEqual(t, again.answer.status, 200, what)
	require.Equal(t, got.answer.status, again.answer.status, what)
	require.Equal(t, got.answer.body, again.answer.body, what)
	for _, h := range []http.Header{got.answer.header, again.answer.header} {
		for _, name := range []string{"Set-Cookie", "Content-Length", "Idempotency-Replayed"} {
			h.Del(name)
		}
	}
	require.Equal(t, got.answer.header, again.answer.header, what)
}
