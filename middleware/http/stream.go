package guardhttp

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/felixge/httpsnoop"
)

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

// hijack takes over the connection.
func (c *recorder) hijack(next httpsnoop.HijackFunc) (net.Conn, *bufio.ReadWriter, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.open() {
		return nil, nil, errEnded
	}
	if c.status != 0 {
		c.settle()
		c.pass()
	}
	conn, rw, err := next()
	if err == nil {
		c.take()
		c.pass()
	}
	return conn, rw, err
}

// take notes that the handler has taken over the connection. c.mu must be held.
func (c *recorder) take() { c.taken, c.lost, c.body = true, true, nil }

// findHijack notes whether the handler has taken over the connection without the recorder:
// http.ResponseController finds the Hijacker of a writer inside of one that has none. Asking sends
// the header. c.mu must be held.
func (c *recorder) findHijack() {
	if _, err := c.inner.Write(nil); errors.Is(err, http.ErrHijacked) { // nothing is kept
		c.take()
	}
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

type (
	unwrapper    interface{ Unwrap() http.ResponseWriter }
	flushErrorer interface{ FlushError() error }
	deadliner    interface {
		SetReadDeadline(time.Time) error
		SetWriteDeadline(time.Time) error
	}
	duplexer interface{ EnableFullDuplex() error }
)

// http.ResponseController looks inside of a writer that can only be unwrapped, such as those of
// many logs. It would flush and hijack without the recorder. A hiding replaces such a writer, and
// makes the controller look inside of a deeper first.
type hiding struct {
	http.ResponseWriter
	recorder *recorder
	inside   http.ResponseWriter
}

// A hidingFlusher is a hiding of a writer that can be flushed.
type hidingFlusher struct {
	*hiding
	http.Flusher
}

func (h *hiding) Unwrap() http.ResponseWriter { return &deeper{h.inside, h.recorder} }

// A deeper is what is inside of a writer.
type deeper struct {
	http.ResponseWriter
	recorder *recorder
}

func (d *deeper) Unwrap() http.ResponseWriter { return d.ResponseWriter }

// FlushError is for http.ResponseController.
func (d *deeper) FlushError() error {
	next := http.NewResponseController(d.ResponseWriter).Flush
	if !canFlush(d.ResponseWriter) {
		return next()
	}
	return d.recorder.flush(next)
}

// Hijack is http.Hijacker.
func (d *deeper) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return d.recorder.hijack(http.NewResponseController(d.ResponseWriter).Hijack)
}
