package guardhttp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/felixge/httpsnoop"
)

// A recorder lets a handler's answer through and copies it.
//
// If the length of an answer is known beforehand, its last byte is held back until the lease has
// been released, or until the handler flushes: a client that has all of it may retry at once, and
// the record has to be there by then. Otherwise net/http sends the end of an answer after its
// handler has returned. With WithAnswerAfterRecord, all of the answer is held back for as long as
// it can be recorded and the handler has not flushed.
type recorder struct {
	inner  http.ResponseWriter
	held   *holder             // inner, if it holds the answer back; or nil
	writer http.ResponseWriter // what the handler gets: it has the optional methods that inner has
	recording

	before http.Header // before the handler
	own    bool        // inner is net/http's own writer: WriteHeader settles the header
	hidden bool        // the connection can be hijacked without the recorder

	// A goroutine of the handler may write after the handler has returned. closed does not need the
	// mutex, because a writer in front may call Header while it is sent something.
	closed atomic.Bool
	failed atomic.Bool // closed, as the handler has panicked, and nothing was sent

	// mu is held while inner is called, so that no write is under way after the end. A write that
	// waits for its client ends at the deadline that an interrupter sets.
	mu      sync.Mutex
	free    bool        // what is written passes through unrecorded
	status  int         // 0 until the answer has begun
	header  http.Header // what of it can be replayed
	pending bool        // WriteHeader was called, and the header is not settled
	shown   http.Header // all of it after WriteHeader
	late    http.Header // what of it was set after WriteHeader
	length  int64       // of the body, as announced; -1 if it was not
	sent    int64       // of it, by the handler
	body    []byte
	zero    [1]string // the length of an empty body
	last    []byte    // what is held back
	lost    bool      // the answer cannot be replayed: too large, a stream, hijacked, with trailers
	typed   bool      // the content type is known
	interim bool      // an informational status was sent
	tardy   bool      // it began after the handler's context had ended
	orphan  bool      // the handler may still run, see errTimeoutHandler
	gone    bool      // the client is
	taken   bool      // the connection is, by Hijack
}

// recording says how to record.
type recording struct {
	most     int             // bytes of a body that are recorded, or -1 for no answer at all
	tolerant bool            // the handler does not learn that the client has gone
	hold     bool            // hold back the last byte
	whole    bool            // hold back all of it, see holder
	without  []string        // headers that are not recorded, see WithoutHeaders
	ctx      context.Context // the handler's
	run      *run
	client   *interrupter // watches calls that may wait for the client; nil if nothing does
}

// buffered is how many bytes of an answer net/http buffers, over HTTP/1.1 and HTTP/2, before a
// write can wait for the client.
const buffered = 4096

// newRecorder returns a recorder in front of w.
func newRecorder(w http.ResponseWriter, how recording) *recorder {
	c := &recorder{inner: w, recording: how, length: -1, lost: how.most < 0, own: sendsAtOnce(w), hidden: hijacksUnseen(w)}
	if h := w.Header(); len(h) > 0 {
		c.before = h.Clone()
	}
	shown := w
	if h := c.hides(w); h != nil {
		shown = h
	} else if _, ok := w.(http.Flusher); !ok && canFlush(w) {
		c.hold, c.whole = false, false // it could be flushed without the recorder
	}
	if c.whole && !c.lost {
		c.held = &holder{ResponseWriter: w, lenient: fmt.Sprintf("%T", w) == "*http.timeoutWriter", holding: true}
		c.inner = c.held
	}
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

// sendsAtOnce reports whether w is a writer of net/http that takes the header as it is when
// WriteHeader is called. http.TimeoutHandler's takes what the header is in the end.
func sendsAtOnce(w http.ResponseWriter) bool {
	t := reflect.TypeOf(w)
	return t.Kind() == reflect.Pointer && t.Elem().PkgPath() == "net/http" && t.Elem().Name() != "timeoutWriter"
}

// open reports whether the handler may still write.
func (c *recorder) open() bool { return c.free || !c.closed.Load() }

// hijack takes over the connection.
func (c *recorder) hijack(next httpsnoop.HijackFunc) (net.Conn, *bufio.ReadWriter, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.open() {
		return nil, nil, errEnded
	}
	c.settle()
	if c.status != 0 {
		c.unhold()
	}
	c.sendLast()
	conn, rw, err := next()
	if err == nil {
		c.take()
		c.unhold()
	}
	return conn, rw, err
}

// forget removes the headers that the handler has set for an answer that it has not begun.
func (c *recorder) forget() { setAll(c.inner.Header(), c.before) }

// take notes that the handler has taken over the connection. c.mu must be held.
func (c *recorder) take() { c.taken, c.lost, c.body = true, true, nil }

// writeHeader looks at a header that is about to be sent.
func (c *recorder) writeHeader(status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.free = c.free || c.failed.Load() && status >= http.StatusBadRequest
	if !c.open() {
		return
	}
	first := c.status == 0
	c.begin(status)
	c.interim = c.interim || c.status == 0
	if c.lost {
		c.unhold()
	}
	c.inner.WriteHeader(status)
	if first && c.status != 0 && !c.own {
		c.pending = true
		if h := c.inner.Header(); !c.lost && len(h) > 0 {
			c.shown = h.Clone()
		}
	}
}

// begin notes the status and the header of the answer, if they are final and the first. c.mu must
// be held.
func (c *recorder) begin(status int) {
	if c.status != 0 || c.free || status > 999 || status < 200 && status != http.StatusSwitchingProtocols {
		return
	}
	c.status, c.tardy = status, c.ctx.Err() != nil
	c.orphan = status == http.StatusServiceUnavailable && byTimeoutHandler()
	h := c.inner.Header()
	c.announce(h)
	c.lost = c.lost || status == http.StatusSwitchingProtocols || c.run.Streams()
	if !c.lost {
		_, c.typed = h["Content-Type"]
		c.header = replayable(h, c.before)
		strip(c.header, c.without)
		c.lost = !recordable(c.header)
	}
}

// announce notes what the header says of the body. c.mu must be held.
func (c *recorder) announce(h http.Header) {
	if bodyAllowed(c.status) {
		c.length = contentLength(h)
	}
	c.lost = c.lost || c.length > int64(c.most) || isEventStream(h) || hasTrailers(h)
}

// settle notes the headers that were set after WriteHeader, before the first byte. Many writers
// send them: those of gin and of compressors keep the status until then. Whether inner does cannot
// be seen, so a replay sets them at the same moment, and the client gets what it got before. A
// writer like gin's, which sends the status of the last WriteHeader, says which that is. c.mu must
// be held.
func (c *recorder) settle() {
	if !c.pending {
		return
	}
	h, shown := c.inner.Header(), c.shown
	c.pending, c.shown = false, nil
	if s, ok := c.inner.(interface{ Status() int }); ok && s.Status() >= http.StatusOK {
		c.status = s.Status()
	}
	if c.lost {
		return
	}
	late := replayable(h, shown)
	if strip(late, c.without); len(late) > 0 {
		c.late = late
		c.lost = c.lost || !recordable(late)
	}
	c.announce(h)
}

// sniff notes the content type that net/http finds out when a flush sends the header: it has seen
// less of the body then than at a replay. c.mu must be held.
func (c *recorder) sniff() {
	if c.typed || c.lost || !bodyAllowed(c.status) {
		return
	}
	c.typed = true
	switch {
	case len(c.body) == 0:
		c.header["Content-Type"] = nil // none
	case c.inner.Header().Get("Content-Encoding") == "":
		c.header["Content-Type"] = []string{http.DetectContentType(c.body)}
	}
}

// write records p and writes it through.
func (c *recorder) write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.free {
		return c.inner.Write(p)
	}
	through, err := c.record(p)
	if err != nil {
		return 0, err
	}
	if through == nil {
		return len(p), nil
	}
	if c.sent > buffered {
		c.mayBlock()
	}
	if c.lost {
		c.unhold()
	}
	n, err := c.inner.Write(through)
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

// errEnded is the error for a goroutine of the handler that writes after the handler has returned,
// and for a framework that answers only then.
var errEnded = errors.New("guardhttp: the handler has returned, and its answer has ended with it")

// record records p. It returns what of it to write through, or nil if that is nothing. c.mu must
// be held.
func (c *recorder) record(p []byte) (through []byte, err error) {
	if !c.open() {
		return nil, errEnded
	}
	c.begin(http.StatusOK)
	c.settle()
	if len(p) == 0 {
		return []byte{}, nil // it sends the header
	}
	if !bodyAllowed(c.status) {
		return p, nil
	}
	total := c.sent + int64(len(p))
	switch {
	case c.length >= 0 && total > c.length && c.last != nil:
		return nil, http.ErrContentLength // which net/http would return if it had all of it
	case c.length >= 0 && total > c.length:
		c.lost, c.body = true, nil
		return p, nil // net/http refuses all of it
	case !c.lost && len(p) > c.most-len(c.body):
		c.lost, c.body = true, nil
	case !c.lost:
		c.body = append(c.body, p...)
	}
	c.sent = total
	if c.gone && !c.lost {
		return nil, nil
	}
	if total == c.length && c.hold {
		c.last = []byte{p[len(p)-1]}
		p = p[:len(p)-1] // if that is nothing, it still sends the header
	}
	return p, nil
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
	c.begin(http.StatusOK)
	c.settle()
	c.sniff()
	if c.gone && !c.lost && c.tolerant {
		return nil
	}
	c.mayBlock()
	c.unhold()
	c.sendLast()
	if err := next(); err != nil && !c.forgives(err) {
		return err
	}
	return nil
}

// sendHeld sends what is held back.
func (c *recorder) sendHeld() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unhold()
	c.sendLast()
}

// sendLast is sendHeld. c.mu must be held.
func (c *recorder) sendLast() {
	last := c.last
	c.last = nil
	if last != nil {
		_, _ = c.inner.Write(last) // the client has gone, or the handler has had an error before
	}
}
