package guardhttp

import (
	"bufio"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"sync"

	"github.com/felixge/httpsnoop"
)

// A recorder lets a handler's answer through and copies it.
//
// Where the length of an answer is known beforehand, its last byte is held back until the lease
// has been given back: a client that has all of it may ask again at once, and the record has to be
// there by then. Otherwise net/http sends the end of an answer after its handler has returned.
type recorder struct {
	inner  http.ResponseWriter
	writer http.ResponseWriter // what the handler gets: it has the optional methods that inner has
	recording

	// a handler's goroutines may write after it has returned, though they must not
	mu     sync.Mutex
	over   bool
	before http.Header // before the handler
	status int         // 0 until the answer has begun
	header http.Header // what of it can be replayed
	length int64       // of the body, as announced; -1 if it was not
	sent   int64       // of it, by the handler
	body   []byte
	last   []byte // what is held back
	lost   bool   // the answer cannot be replayed: too large, streamed, hijacked, with trailers
	late   bool   // it began after the handler's context had ended
	gone   bool   // the client is
	taken  bool   // the connection is, by Hijack

	streams bool // the handler flushes: nothing is held back
}

// recording says how to record.
type recording struct {
	most     int         // bytes of a body that are recorded, or -1 for no answer at all
	tolerant bool        // the handler is not told that the client has gone
	hold     bool        // hold back the last byte
	ended    func() bool // the handler's context has ended
}

// newRecorder returns a recorder in front of w.
func newRecorder(w http.ResponseWriter, how recording) *recorder {
	c := &recorder{inner: w, recording: how, length: -1, lost: how.most < 0}
	if h := w.Header(); len(h) > 0 {
		c.before = h.Clone()
	}
	shown := w
	if h := c.hides(w); h != nil {
		shown = h
	} else if _, ok := w.(http.Flusher); !ok && canFlush(w) {
		c.hold = false // it could be flushed behind our back
	}
	c.writer = httpsnoop.Wrap(shown, httpsnoop.Hooks{
		WriteHeader: func(next httpsnoop.WriteHeaderFunc) httpsnoop.WriteHeaderFunc {
			return func(status int) { c.writeHeader(status); next(status) }
		},
		Write: func(httpsnoop.WriteFunc) httpsnoop.WriteFunc { return c.write },
		WriteString: func(httpsnoop.WriteStringFunc) httpsnoop.WriteStringFunc {
			return func(s string) (int, error) { return c.write([]byte(s)) }
		},
		ReadFrom: func(next httpsnoop.ReadFromFunc) httpsnoop.ReadFromFunc {
			return func(src io.Reader) (int64, error) { return c.readFrom(src, next) }
		},
		Flush: func(next httpsnoop.FlushFunc) httpsnoop.FlushFunc {
			return func() { c.stream(); next() }
		},
		FlushError: func(next httpsnoop.FlushErrorFunc) httpsnoop.FlushErrorFunc {
			return func() error { c.stream(); return next() }
		},
		Hijack: func(next httpsnoop.HijackFunc) httpsnoop.HijackFunc {
			return func() (net.Conn, *bufio.ReadWriter, error) { return c.hijack(next) }
		},
	})
	return c
}

// begun reports whether the handler has begun to answer, or has taken over the connection.
func (c *recorder) begun() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status != 0 || c.taken
}

// hijack takes over the connection.
func (c *recorder) hijack(next httpsnoop.HijackFunc) (net.Conn, *bufio.ReadWriter, error) {
	c.sendLast()
	conn, rw, err := next()
	if err == nil {
		c.take()
	}
	return conn, rw, err
}

// forget takes out the headers that the handler has set for an answer that it has not begun.
func (c *recorder) forget() {
	h := c.inner.Header()
	clear(h)
	maps.Copy(h, c.before)
}

// take notes that the handler has taken over the connection.
func (c *recorder) take() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.taken, c.lost, c.body = true, true, nil
}

// writeHeader looks at a header that is about to be sent.
func (c *recorder) writeHeader(status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begin(status)
}

// begin notes the status and the header of the answer, if they are final and the first. c.mu must
// be held.
func (c *recorder) begin(status int) {
	if c.status != 0 || c.over || status > 999 || status < 200 && status != http.StatusSwitchingProtocols {
		return
	}
	c.status, c.late = status, c.ended()
	h := c.inner.Header()
	if bodyAllowed(status) {
		c.length = contentLength(h)
	}
	if c.lost || status == http.StatusSwitchingProtocols || c.length > int64(c.most) {
		c.lost = true
		return
	}
	c.header = replayable(h, c.before)
	c.lost = hasTrailers(h) || !recordable(c.header)
}

// write records p and writes it through.
func (c *recorder) write(p []byte) (int, error) {
	through, err := c.record(p)
	if err != nil {
		return 0, err
	}
	if through == nil {
		return len(p), nil
	}
	n, err := c.inner.Write(through)
	if err == nil || c.forgives(err) {
		return len(p), nil
	}
	return n, err
}

// errOver is what a handler's goroutine gets that writes after the handler has returned.
var errOver = errors.New("guardhttp: the handler has returned")

// record records p. It returns what of it to write through, or nil if that is nothing.
func (c *recorder) record(p []byte) (through []byte, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return nil, errOver
	}
	c.begin(http.StatusOK)
	if len(p) == 0 {
		return []byte{}, nil // it sends the header
	}
	if !bodyAllowed(c.status) {
		return p, nil
	}
	total := c.sent + int64(len(p))
	switch {
	case c.length >= 0 && total > c.length && c.last != nil:
		return nil, http.ErrContentLength // which net/http would say, had it had all
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
	if total == c.length && c.hold && !c.streams {
		c.last = []byte{p[len(p)-1]}
		p = p[:len(p)-1] // if that is nothing, it still sends the header
	}
	return p, nil
}

// forgives reports whether to keep from the handler that writing failed: the client has gone, and
// the answer is recorded to its end for the retry.
func (c *recorder) forgives(err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case errors.Is(err, http.ErrContentLength), errors.Is(err, http.ErrBodyNotAllowed):
		return false // the handler's mistake
	case errors.Is(err, http.ErrHijacked):
		c.taken, c.lost, c.body = true, true, nil
		return false
	}
	c.gone = true
	return c.tolerant && !c.lost
}

// stream is for a handler that wants what it has written to leave at once.
func (c *recorder) stream() {
	c.mu.Lock()
	c.begin(http.StatusOK)
	c.lost, c.body, c.streams = true, nil, true
	c.mu.Unlock()
	c.sendLast()
}

// sendLast sends what is held back.
func (c *recorder) sendLast() {
	c.mu.Lock()
	last := c.last
	c.last = nil
	c.mu.Unlock()
	if last != nil {
		_, _ = c.inner.Write(last) // the client has gone, or the handler has had an error before
	}
}

// hijackedUnseen reports whether the handler has taken over the connection behind our back:
// http.ResponseController finds the Hijacker of a writer inside of one that has none. Asking sends
// the header.
func (c *recorder) hijackedUnseen() bool {
	if _, ok := c.inner.(http.Hijacker); ok {
		return false
	}
	_, err := c.inner.Write(nil)
	if !errors.Is(err, http.ErrHijacked) {
		return false
	}
	c.take()
	return true
}

// A verdict is what a recorder has seen.
type verdict struct {
	answer *answer // nil if it cannot be replayed
	status int     // 0 if the handler took over the connection
	late   bool    // the answer began after the handler's context had ended
	gone   bool    // the client did not get all of it
}

// end ends the recording, after the handler has returned.
func (c *recorder) end() verdict {
	c.hijackedUnseen()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.taken {
		c.begin(http.StatusOK)
	}
	c.over = true
	v := verdict{status: c.status, late: c.late, gone: c.gone}
	if !c.lost && c.length <= c.sent && !hasTrailers(c.inner.Header()) {
		v.answer = &answer{status: c.status, header: c.header, body: c.body}
	}
	return v
}
