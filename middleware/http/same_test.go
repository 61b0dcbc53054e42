package guardhttp_test

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"maps"
	mathrand "math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
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
}

// A streamsStage plays handlers behind a server.
type streamsStage struct {
	play     atomic.Pointer[streamsPlay]
	finished chan []string // the handler has
	returned chan bool     // all of it has
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
func streamsStages(t *testing.T, store *contentStore, http2 bool, behind func(http.Handler) http.Handler, opts ...guardhttp.Option) (bare, ours *streamsStage) {
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
	idempotent, err := guardhttp.New(store.guard, guardhttp.IdempotencyKey,
		append(opts, guardhttp.WithScope(tenant), guardhttp.WithPolicy(keepAll))...)
	require.NoError(t, err)
	return stage(behind), stage(func(h http.Handler) http.Handler { return behind(idempotent(h)) })
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
	what, key := play.String(), rand.Text()
	got := streamsRequireSame(t, bare, ours, play, key)
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
	require.Equal(t, got.answer.status, again.answer.status, what)
	require.Equal(t, got.answer.body, again.answer.body, what)
	for _, h := range []http.Header{got.answer.header, again.answer.header} {
		for _, name := range []string{"Set-Cookie", "Content-Length", "Idempotency-Replayed"} {
			h.Del(name)
		}
	}
	require.Equal(t, got.answer.header, again.answer.header, what)
}

const streamsMaxAnswer = 20_000

// Row 33: what comes back is what comes back without us.
// The other writers are in TestLong_streamsSameAsWithoutUs.
func TestStreams_sameAsWithoutUs(t *testing.T) {
	t.Parallel()
	streamsRequireSameBy(t, nil, "net/http", "hidden")
}

// So it is if the answer is held back until its record is in the store.
func TestStreams_sameAfterTheRecord(t *testing.T) {
	t.Parallel()
	streamsRequireSameBy(t, []guardhttp.Option{idempotency.WithAnswerAfterRecord()}, "net/http", "hidden")
}

func TestLong_streamsSameAsWithoutUs(t *testing.T) {
	redistest.Long(t)
	streamsRequireSameBy(t, nil, slices.Collect(maps.Keys(streamsWriters))...)
	streamsRequireSameBy(t, []guardhttp.Option{idempotency.WithAnswerAfterRecord()}, slices.Collect(maps.Keys(streamsWriters))...)
}

// streamsRequireSameBy has handlers answer through each of the writers, with the middleware and
// without.
func streamsRequireSameBy(t *testing.T, opts []guardhttp.Option, writers ...string) {
	t.Helper()
	store := contentRedis(t)
	files := streamsMakeFiles(t)
	plays := []streamsPlay{
		{},
		{streamsHeader("X-A", "b")},
		{streamsStatus(201)},
		{streamsStatus(204)},
		{streamsStatus(204), streamsWrite(10)},
		{streamsStatus(304), streamsWriteString(10)},
		{streamsStatus(304), files.copyFile(10)},
		{streamsStatus(204), files.readFrom(10), streamsFlush},
		{streamsStatus(205), streamsWrite(10)},
		{streamsWrite(0)},
		{streamsWrite(0), streamsStatus(500)},
		{streamsWrite(10)},
		{streamsWrite(10), streamsStatus(500)},
		{streamsWriteString(10), streamsWriteString(0), streamsWrite(3000)},
		{streamsCopyReader(3000)},
		{streamsCopyReader(0), streamsStatus(201)},
		{files.copyFile(0), streamsStatus(201)},
		{files.copyFile(0), streamsHeader("X-A", "b"), streamsWrite(10)},
		{files.copyFailing(0), streamsStatus(502), streamsWrite(10)},
		{files.copyFailing(10), streamsStatus(502), streamsWrite(10)},
		{files.readFrom(0), streamsStatus(201)},
		{files.copyFile(10)},
		{files.copyFile(600)},
		{files.copyFile(100_000)},
		{files.copyPart(100_000)},
		{streamsHeader("Content-Length", "100000"), files.copyFile(100_000)},
		{streamsHeader("Content-Length", "10000"), files.copyFile(10_000)},
		{streamsHeader("Content-Length", "10000"), files.copyPart(5_000), files.copyPart(5_000)},
		{streamsHeader("Content-Length", "10000"), files.copyFile(5_000)},
		{streamsHeader("Content-Length", "100000"), streamsWrite(50_000), files.copyFile(50_000)},
		{streamsHeader("Content-Length", "100000"), streamsWrite(50_000), files.copyFile(49_999), streamsWrite(1)},
		{streamsHeader("Content-Length", "1"), streamsWrite(1)},
		{streamsHeader("Content-Length", "1"), files.copyFile(1)},
		{streamsHeader("Content-Length", "0")},
		{streamsHeader("Content-Length", "0"), streamsStatus(304)},
		{streamsHeader("Content-Length", "10"), streamsStatus(204)},
		{streamsHeader("Content-Length", "10"), streamsStatus(304), streamsWrite(10)},
		{streamsHeader("Content-Length", "nonsense"), streamsWrite(10)},
		{streamsHeader("Content-Length", "-1"), streamsWrite(10)},
		{streamsHeader("Content-Length", "010"), streamsWrite(10)},
		{streamsHeader("Content-Length", "10", "10"), streamsWrite(10)},
		{streamsHeader("Content-Length", "99999999999999999999"), streamsWrite(10)},
		{streamsHeader("Content-Length"), streamsWrite(10)},
		{streamsHeader("Content-Type"), streamsWrite(10)},
		{streamsHeader("Content-Type", "a/b"), streamsHeader("Set-Cookie", "a=b"), streamsHeader("Etag", `"e"`), streamsWrite(10)},
		{streamsHeader("Transfer-Encoding", "identity"), streamsHeader("Content-Type", "a/b"), streamsWrite(10)},
		{streamsHeader("Connection", "close"), streamsWrite(10)},
		{streamsHeader("X Bad", "b"), streamsHeader("X-Cr", "a\rb"), streamsWrite(10)},
		{streamsStatus(103), streamsHeader("X-A", "b"), streamsStatus(102), streamsStatus(200), streamsWrite(10)},
		{streamsStatus(100), streamsWrite(10)},
		{streamsStatus(103)},
		{streamsFlush},
		{streamsFlush, streamsStatus(500), streamsWrite(10)},
		{streamsWrite(10), streamsFlush, streamsWrite(10), streamsFlush},
		{streamsWrite(10), streamsControlFlush, streamsWrite(10)},
		{streamsHeader("Content-Length", "20"), streamsWrite(10), streamsFlush, streamsWrite(10)},
		{streamsHeader("Content-Length", "20"), streamsWrite(20), streamsFlush},
		{streamsHeader("Content-Length", "20"), streamsWrite(20), streamsControlFlush, streamsStatus(500)},
		{streamsFlush, files.copyFile(10_000)},
		{streamsStatus(204), streamsFlush},
		{streamsFlush, streamsStatus(500), streamsWrite(10)},
		{streamsWrite(10), streamsControlFlush, streamsStatus(500), streamsWrite(10)},
		{streamsHeader("Trailer", "X-A"), streamsWrite(10), streamsHeader("X-A", "b")},
		{streamsWrite(10), streamsFlush, streamsHeader(http.TrailerPrefix+"X-A", "b")},
		{streamsWrite(10), streamsHeader(http.TrailerPrefix+"X-A", "b")},
		{streamsDeadlines, streamsDuplex, streamsRead, streamsPush, streamsWrite(10)},
		{streamsWrite(10), streamsRead},
		{streamsWrite(50_000), streamsRead, streamsWrite(50_000)},
		{streamsWrite(streamsMaxAnswer), streamsWrite(1)},
		{streamsWrite(streamsMaxAnswer)},
		{streamsHijack},
		{streamsHeader("X-A", "b"), streamsHijack, streamsStatus(500), streamsWrite(10)},
		{streamsRead, streamsHijack},
		{streamsStatus(200), streamsFlush, streamsHijack},
		{streamsWrite(10), streamsHijack},
		{streamsWrite(10), streamsFlush, streamsHijack},
	}
	for _, name := range writers {
		t.Run(name, func(t *testing.T) {
			contentProtocols(t, func(t *testing.T, http2 bool) {
				bare, ours := streamsStages(t, store, http2, streamsWriters[name], append(opts, idempotency.WithMaxAnswer(streamsMaxAnswer))...)
				for _, play := range plays {
					if len(opts) > 0 && !http2 && play.any(func(s streamsStep) bool { return s.hijacks }) &&
						(name == "hidden, flusher" || name == "only a Flusher" || name == "only deadlines") {
						continue // the middleware does not see it
					}
					if http2 && play.any(func(s streamsStep) bool {
						return s.name == `header Connection ["close"]` || strings.HasPrefix(s.name, "header Transfer")
					}) {
						continue // not of that protocol
					}
					streamsRequireReplay(t, bare, ours, play)
				}
			})
		})
	}
}

// The same for random handlers.
func TestLong_streamsSameAsWithoutUsAtRandom(t *testing.T) {
	redistest.Long(t)
	store := contentRedis(t)
	files := streamsMakeFiles(t)
	contentProtocols(t, func(t *testing.T, http2 bool) {
		t.Parallel()
		for _, name := range []string{"net/http", "hidden", "only a Flusher"} {
			bare, ours := streamsStages(t, store, http2, streamsWriters[name], idempotency.WithMaxAnswer(streamsMaxAnswer))
			random := mathrand.New(mathrand.NewPCG(1, uint64(len(name))))
			for range 120 {
				streamsRequireReplay(t, bare, ours, streamsAtRandom(random, files, http2, name != "net/http"))
			}
		}
		for name, opt := range map[string]guardhttp.Option{
			"reject": idempotency.WithMode(idempotency.Reject), "exclusive": idempotency.WithMode(idempotency.Exclusive), "shadow": idempotency.WithShadow(),
			"no fingerprint": guardhttp.WithFingerprint(nil), "client cancel": idempotency.WithClientCancel(), "no answers": idempotency.WithMaxAnswer(0),
		} {
			bare, ours := streamsStages(t, store, http2, streamsWriters["net/http"], opt)
			random := mathrand.New(mathrand.NewPCG(2, uint64(len(name))))
			for range 30 {
				streamsRequireSame(t, bare, ours, streamsAtRandom(random, files, http2, false), rand.Text())
			}
		}
	})
}

// streamsAtRandom makes up a play. What net/http itself does differently from one time to the next
// is left out.
func streamsAtRandom(random *mathrand.Rand, files streamsFiles, http2, hidden bool) streamsPlay {
	pick := func(of ...int) int { return of[random.IntN(len(of))] }
	size := func() int {
		// HTTP/2 refuses even a write of no bytes if the status allows no body.
		if http2 {
			return pick(1, 2, 10, 511, 512, 600, 2047, 2048, 2049, 4096, 5000, streamsMaxAnswer, 33_000, 70_000)
		}
		return pick(0, 1, 2, 10, 511, 512, 600, 2047, 2048, 2049, 4096, 5000, streamsMaxAnswer, 33_000, 70_000)
	}
	var play streamsPlay
	for range random.IntN(7) {
		var s streamsStep
		switch random.IntN(22) {
		case 0:
			s = streamsHeader(fmt.Sprint("X-", random.IntN(3)), strconv.Itoa(random.IntN(3)))
		case 1:
			s = streamsHeader("Content-Type", "a/b")
		case 2:
			s = streamsHeader("Content-Type")
		case 3:
			s = streamsHeader("Set-Cookie", "a=b")
		case 4:
			s = streamsHeader("Trailer", "X-0")
		case 5:
			s = streamsHeader(http.TrailerPrefix+"X-1", "b")
		case 6, 7:
			s = streamsStatus(pick(200, 201, 404, 204, 304, 418))
		case 8:
			s = streamsStatus(pick(102, 103))
		case 9, 10, 11:
			s = streamsWrite(size())
		case 12:
			s = streamsWriteString(size())
		case 13:
			s = streamsCopyReader(size())
		case 14:
			s = files.copyFile(size())
		case 15:
			s = files.copyPart(size())
		case 16:
			s = files.copyFailing(size())
		case 17:
			s = files.readFrom(size())
		case 18:
			s = streamsFlush
		case 19:
			s = streamsControlFlush
			if hidden {
				s = streamsFlush // see TestStreams_flushBehindAHiddenWriter
			}
		case 20:
			s = []streamsStep{streamsDeadlines, streamsDuplex, streamsPush}[random.IntN(3)]
		case 21:
			// how much of that has left is not defined
			written := play.any(func(s streamsStep) bool { return s.bytes > 0 })
			if random.IntN(4) == 0 && !hidden && !written {
				s = streamsHijack
			} else {
				s = streamsHeader("Etag", `"e"`)
			}
		}
		if hidden && strings.HasPrefix(s.name, "header ") && play.any(func(s streamsStep) bool { return strings.HasPrefix(s.name, "status ") }) {
			// It is sent, and net/http would not: TestLazy_headersAreThoseThatTheWriterSent.
			continue
		}
		play = append(play, s)
		if s.hijacks {
			break
		}
	}
	if random.IntN(4) == 0 { // later, the client may have given up sending, as the answer has come
		play = slices.Insert(play, 0, streamsRead)
	}
	total := 0
	for _, s := range play {
		total += s.bytes
	}
	switch random.IntN(4) {
	case 0: // the length is announced
		play = slices.Insert(play, 0, streamsHeader("Content-Length", strconv.Itoa(total)))
	case 1:
		// the length is too small, which HTTP/2 does not notice, nor net/http if it copies a file
		copied := play.any(func(s streamsStep) bool { return s.copies })
		if random.IntN(2) == 0 && !http2 && !copied && total > 0 {
			play = slices.Insert(play, 0, streamsHeader("Content-Length", strconv.Itoa(random.IntN(total))))
		}
	case 2: // and too large
		if random.IntN(3) == 0 {
			play = slices.Insert(play, 0, streamsHeader("Content-Length", strconv.Itoa(total+pick(1, 10, 10_000))))
		}
	}
	return play
}
