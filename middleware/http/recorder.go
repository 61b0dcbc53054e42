package guardhttp

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/felixge/httpsnoop"

	"github.com/seed-1795987d/onerun/middleware/idempotency"
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
	sent    http.Header // the header that is sent, if it is kept until then
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
	c.lost = c.lost || c.status == http.StatusSwitchingProtocols || c.streams() ||
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

// sniff notes the content type that net/http finds out when a flush sends the header: it has seen
// less of the body then than at a replay. c.mu must be held.
func (c *recorder) sniff() {
	_, typed := c.header["Content-Type"]
	_, before := c.before["Content-Type"]
	switch {
	case typed || before || !bodyAllowed(c.status):
	case len(c.body) == 0:
		c.header["Content-Type"] = nil // none
	case c.inner.Header().Get("Content-Encoding") == "":
		c.header["Content-Type"] = []string{http.DetectContentType(c.body)}
	}
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

// mayBlock announces a call that may wait for the client.
func (c *recorder) mayBlock() {
	if c.client != nil {
		c.client.watch()
	}
}

// forgives reports whether to hide from the handler that writing failed: the client has gone, and
// the answer is recorded to its end for the retry. c.mu must be held.
func (c *recorder) forgives(err error) bool {
	switch {
	case errors.Is(err, http.ErrContentLength), errors.Is(err, http.ErrBodyNotAllowed), errors.Is(err, http.ErrNotSupported):
		return false // the handler's mistake
	case errors.Is(err, http.ErrHijacked):
		c.take()
		return false
	}
	c.gone = true
	return c.tolerant && !c.lost
}

// flush sends what the handler has written.
func (c *recorder) flush(next func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.free:
		return next()
	case !c.open():
		return errEnded
	}
	begun := c.status != 0
	c.start()
	if !c.lost {
		c.sniff()
	}
	if c.gone && !c.lost && c.tolerant {
		return nil
	}
	c.mayBlock()
	switch { // a writer in front may flush in name only, and take another status after it
	case begun:
	case c.holding:
		c.called = true
	default:
		c.inner.WriteHeader(c.status)
	}
	c.pass()
	if err := next(); err != nil && !c.forgives(err) {
		return err
	}
	return nil
}

// readFrom is io.ReaderFrom. It copies the answer while it is kept or recorded, and then uses the
// writer's own ReadFrom, which is faster.
func (c *recorder) readFrom(src io.Reader, next httpsnoop.ReadFromFunc) (copied int64, err error) {
	for buffer := []byte(nil); !c.sendsUnrecorded(); {
		if buffer == nil {
			buffer = make([]byte, 32<<10)
		}
		n, readErr := src.Read(buffer)
		if n > 0 {
			written, err := c.write(buffer[:n])
			copied += int64(written)
			if err != nil {
				return copied, err
			}
		}
		switch {
		case errors.Is(readErr, io.EOF):
			return copied, nil
		case readErr != nil:
			return copied, readErr
		}
	}
	n, err := next(src)
	c.mu.Lock()
	defer c.mu.Unlock()
	if n > 0 { // net/http sends no header for zero bytes
		c.begin(http.StatusOK)
	}
	return copied + n, err
}

// sendsUnrecorded reports whether what the handler writes is sent at once, and not recorded.
func (c *recorder) sendsUnrecorded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.free {
		return true
	}
	if c.open() && c.status != 0 {
		c.settle()
	}
	if !c.open() || c.holding || !c.lost {
		return false
	}
	c.mayBlock()
	return true
}
