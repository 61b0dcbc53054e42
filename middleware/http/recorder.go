package guardhttp

import (
	"bufio"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/felixge/httpsnoop"

	"github.com/seed-1795987d/onerun/middleware/idempotency"
	"github.com/seed-1795987d/onerun/middleware/internal/idempotent"
)

// A recorder keeps the answer of a handler until the run is over, and then sends it: by then, the
// store has its record. Once, it may switch to sending what the handler writes at once, and goes on
// to record it while it can: if the handler flushes. An answer that cannot be replayed is sent at
// once, too: one that is larger than WithMaxAnswer, a stream, one with trailers.
type recorder struct {
	inner  http.ResponseWriter // the one that the middleware got
	writer http.ResponseWriter // what the handler gets: it has the optional methods of that writer
	recording

	own    bool        // inner is net/http's: the header counts as it is when WriteHeader is called
	last   bool        // inner is like gin's: the last status before the first byte counts
	before http.Header // before the handler
	hidden bool        // the connection can be hijacked without the recorder
	unsure bool        // nothing shows whether inner takes the header in WriteHeader

	// A goroutine of the handler may write after the handler has returned. closed does not need the
	// mutex, because a writer in front may call Header while it is sent something.
	closed atomic.Bool
	failed atomic.Bool // closed, as the handler has panicked, and nothing was sent

	// mu is held while inner is called, so that no write is under way after the end. A write that
	// waits for its client ends at the deadline that an interrupter sets.
	mu      sync.Mutex
	holding bool        // what the handler writes is kept, and not sent
	free    bool        // what is written passes through unrecorded
	status  int         // 0 until the answer has begun
	called  bool        // WriteHeader was, with that status
	again   []int       // statuses that came after it, which net/http logs
	written bool        // Write was called
	settled bool        // what follows is known
	sent    http.Header // the header that is sent, if that is kept; or that of WriteHeader
	header  http.Header // what of it can be replayed
	length  int64       // of the body, as announced; -1 if it was not
	body    []byte      // what there is of it; nil if it cannot be replayed and was sent
	lost    bool        // it cannot be replayed: too large, a stream, hijacked, with trailers
	interim bool        // an informational status was sent
	tardy   bool        // it began after the handler's context had ended
	orphan  bool        // the handler may still run, see errTimeoutHandler
	gone    bool        // the client is
	taken   bool        // the connection is, by Hijack
}

// recording says how to record.
type recording struct {
	most     int             // bytes of a body that are kept, or -1 for no answer at all
	keep     bool            // keep the answer until sendKept
	tolerant bool            // the handler does not learn that the client has gone
	without  []string        // headers that are not recorded, see WithoutHeaders
	ctx      context.Context // the handler's
	run      *idempotency.Run
	client   *interrupter // watches calls that may wait for the client; nil if nothing does
}

// newRecorder returns a recorder in front of w.
func newRecorder(w http.ResponseWriter, how recording) *recorder {
	c := &recorder{inner: w, recording: how, own: sendsAtOnce(w), length: -1, lost: how.most < 0, hidden: hijacksUnseen(w)}
	_, c.last = w.(interface{ WriteHeaderNow() })
	if h := w.Header(); len(h) > 0 {
		c.before = h.Clone()
	}
	shown := w
	if h := c.hides(w); h != nil {
		shown, c.hidden = h, false
	} else if _, ok := w.(http.Flusher); !ok && canFlush(w) {
		c.keep = false // it could be flushed without the recorder
	}
	c.holding = c.keep && !c.lost && !c.hidden
	c.unsure = how.keep && !c.holding && !c.own && !c.last
	c.writer = httpsnoop.Wrap(shown, httpsnoop.Hooks{
		Header: func(next httpsnoop.HeaderFunc) httpsnoop.HeaderFunc {
			return func() http.Header {
				if c.closed.Load() && !c.failed.Load() {
					return http.Header{}
				}
				return next()
			}
		},
		WriteHeader: func(httpsnoop.WriteHeaderFunc) httpsnoop.WriteHeaderFunc { return c.writeHeader },
		Write:       func(httpsnoop.WriteFunc) httpsnoop.WriteFunc { return c.write },
		WriteString: func(httpsnoop.WriteStringFunc) httpsnoop.WriteStringFunc {
			return func(s string) (int, error) { return c.write([]byte(s)) }
		},
		ReadFrom: func(next httpsnoop.ReadFromFunc) httpsnoop.ReadFromFunc {
			return func(src io.Reader) (int64, error) { return c.readFrom(src, next) }
		},
		Flush: func(next httpsnoop.FlushFunc) httpsnoop.FlushFunc {
			return func() { _ = c.flush(func() error { next(); return nil }) }
		},
		FlushError: func(next httpsnoop.FlushErrorFunc) httpsnoop.FlushErrorFunc {
			return func() error { return c.flush(next) }
		},
		Hijack: func(next httpsnoop.HijackFunc) httpsnoop.HijackFunc {
			return func() (net.Conn, *bufio.ReadWriter, error) { return c.hijack(next) }
		},
	})
	return c
}

// hides returns a hiding for w, or nil if w is not such a writer.
func (c *recorder) hides(w http.ResponseWriter) http.ResponseWriter {
	switch w.(type) {
	case flushErrorer, http.Hijacker, io.ReaderFrom, io.StringWriter, http.Pusher, deadliner, duplexer,
		http.CloseNotifier: //nolint:staticcheck // deprecated, but there
		return nil
	}
	u, ok := w.(unwrapper)
	if !ok {
		return nil
	}
	h := &hiding{w, c, u.Unwrap()}
	if f, ok := w.(http.Flusher); ok {
		return &hidingFlusher{h, f}
	}
	return h
}

// canFlush reports whether http.ResponseController can flush w.
func canFlush(w http.ResponseWriter) bool {
	for {
		switch inner := w.(type) {
		case http.Flusher, flushErrorer:
			return true
		case unwrapper:
			w = inner.Unwrap()
		default:
			return false
		}
	}
}

// hijacksUnseen reports whether http.ResponseController can hijack w, which is no Hijacker itself.
func hijacksUnseen(w http.ResponseWriter) bool {
	for first := true; ; first = false {
		if _, ok := w.(http.Hijacker); ok {
			return !first
		}
		inner, ok := w.(unwrapper)
		if !ok {
			return false
		}
		w = inner.Unwrap()
	}
}

// open reports whether the handler may still write.
func (c *recorder) open() bool { return c.free || !c.closed.Load() }

// writeHeader notes a status, and keeps it or sends it. An informational one in front of the
// answer's is always sent. So is one that is none: net/http panics.
func (c *recorder) writeHeader(status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.free = c.free || c.failed.Load() && status >= http.StatusBadRequest
	if !c.open() {
		return
	}
	begun := c.status != 0
	c.begin(status)
	c.interim = c.interim || c.status == 0
	if c.status != 0 && (c.own || status == http.StatusSwitchingProtocols) {
		c.settle()
	}
	switch {
	case !c.holding || c.status == 0:
		c.inner.WriteHeader(status)
		if c.unsure && !begun && c.status != 0 {
			c.sent = c.inner.Header().Clone()
		}
	case !begun:
		c.called = true
	case !c.last:
		c.again = append(c.again, status)
	}
}

// begin notes the status, if it is final and counts. c.mu must be held.
func (c *recorder) begin(status int) {
	if c.status != 0 && !c.last || c.settled || c.free || status > 999 || status < 200 && status != http.StatusSwitchingProtocols {
		return
	}
	c.status, c.tardy = status, c.ctx.Err() != nil
	c.orphan = status == http.StatusServiceUnavailable && byTimeoutHandler()
}

// start begins an answer without a status, and settles it. c.mu must be held.
func (c *recorder) start() {
	if c.status == 0 {
		c.begin(http.StatusOK)
	}
	c.settle()
}

// settle notes the header: when net/http's own writer is given the status, and otherwise before the
// first byte. Many other writers, such as those of gin and of compressors, send then what was set
// since. A writer such as gin's says which status it will send. A replay sets all of the header
// before the status. c.mu must be held.
func (c *recorder) settle() {
	if c.settled || c.free {
		return
	}
	c.settled = true
	if w, ok := c.inner.(interface{ Status() int }); ok && (!c.holding || !c.called) {
		if status := w.Status(); status >= http.StatusOK {
			c.status = status
		}
	}
	h := c.inner.Header()
	if c.holding {
		c.sent = h.Clone()
	}
	if bodyAllowed(c.status) {
		c.length = contentLength(h)
	}
	changed := c.unsure && c.sent != nil && !maps.EqualFunc(h, c.sent, slices.Equal)
	c.lost = c.lost || c.status == http.StatusSwitchingProtocols || c.streams() || changed ||
		c.length > int64(c.most) || isEventStream(h) || hasTrailers(h)
	if !c.lost {
		c.header = replayable(h, c.before)
		strip(c.header, c.without)
		c.lost = !recordable(c.header)
	}
	if c.lost {
		c.pass()
	}
}

// streams reports whether the handler has said that its answer is a stream.
func (c *recorder) streams() bool {
	keep, chosen := c.run.Chosen()
	return chosen && keep == idempotency.KeepTombstone
}

// write records p, and keeps it or sends it.
func (c *recorder) write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.free {
		return c.inner.Write(p)
	}
	if !c.open() {
		return 0, errEnded
	}
	c.start()
	allowed := bodyAllowed(c.status)
	if size := len(c.body) + len(p); allowed && !c.lost && (size > c.most || c.length >= 0 && int64(size) > c.length) {
		c.lost = true // net/http refuses what is longer than announced
		c.pass()
	}
	c.written = true
	switch {
	case allowed && !c.lost:
		c.body = append(c.body, p...)
		if c.holding || c.gone && c.tolerant {
			return len(p), nil
		}
	case c.holding && (len(p) == 0 || ofTimeoutHandler(c.inner)):
		return len(p), nil // http.TimeoutHandler takes any body, and sends none
	case c.holding:
		return 0, http.ErrBodyNotAllowed
	}
	c.mayBlock()
	n, err := c.inner.Write(p)
	if err == nil || c.forgives(err) {
		return len(p), nil
	}
	return n, err
}

// errEnded is the error for a goroutine of the handler that writes after the handler has returned,
// and for a framework that answers only then.
var errEnded = errors.New("guardhttp: the handler has returned, and its answer has ended with it")

// A verdict is what a recorder has seen.
type verdict struct {
	answer *idempotent.Answer // nil if it cannot be replayed
	status int                // 0 if the handler took over the connection
	silent bool               // the handler has not begun an answer: nothing was sent yet
	orphan bool               // the handler may still run
	tardy  bool               // the answer began after the handler's context had ended
	gone   bool               // the client did not get all of it
}

// end ends the recording, after the handler has returned. A silent verdict needs sendEmpty or
// passOn.
func (c *recorder) end() verdict {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed.Store(true)
	silent := c.status == 0 && !c.taken
	if c.hidden && !silent {
		c.findHijack()
	}
	if !c.taken {
		c.start()
	}
	v := verdict{status: c.status, silent: silent, orphan: c.orphan, tardy: c.tardy, gone: c.gone}
	if !c.lost && c.length <= int64(len(c.body)) && !hasTrailers(c.inner.Header()) {
		v.answer = &idempotent.Answer{Status: c.status, Header: c.header, Body: c.body}
	}
	return v
}

// sendKept sends what is kept.
func (c *recorder) sendKept() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pass()
}

// pass sends what is kept of the answer: it makes the calls that make up the answer, so that the
// writer sends what it would have sent at once. From now on, what the handler writes is sent at
// once. c.mu must be held.
func (c *recorder) pass() {
	if c.holding && (c.called || c.written) {
		h := c.inner.Header()
		late := trailers(h)
		clear(h)
		maps.Copy(h, c.sent) // a writer in front may add to the header, and send it in the end
		if c.called {
			c.inner.WriteHeader(c.status)
		}
		if c.written || len(c.again) > 0 {
			_, _ = c.inner.Write(c.body) // the client may have gone
		}
		for _, status := range c.again {
			c.inner.WriteHeader(status)
		}
		maps.Copy(h, late)
	}
	c.holding = false
	if c.lost {
		c.body = nil
	}
}
