package guardhttp

import (
	"io"
	"net/http"
	"strconv"

	"github.com/felixge/httpsnoop"
)

// readFrom is io.ReaderFrom. It copies the answer while it is recorded, and then uses the writer's
// own ReadFrom, which is faster.
func (c *recorder) readFrom(src io.Reader, next httpsnoop.ReadFromFunc) (copied int64, err error) {
	var buffer []byte
	for c.recordsBody() {
		if buffer == nil {
			buffer = make([]byte, 32<<10)
		}
		n, err := src.Read(buffer)
		if n > 0 {
			written, err := c.write(buffer[:n])
			copied += int64(written)
			if err != nil {
				return copied, err
			}
		}
		if err == io.EOF {
			return copied, nil
		}
		if err != nil {
			return copied, err
		}
	}
	held, open := c.ready()
	switch {
	case !open:
		return copied, errEnded
	case held:
		n, err := io.Copy(writerFunc(c.write), src)
		return copied + n, err
	}
	n, err := c.pass(src, next)
	return copied + n, err
}

// pass is readFrom without recording.
func (c *recorder) pass(src io.Reader, next httpsnoop.ReadFromFunc) (int64, error) {
	rest := c.rest() - 1 // without the last byte, which is held back
	if rest < 0 {
		n, err := next(src)
		c.count(n)
		return n, err
	}
	// net/http looks through one io.LimitedReader for a file.
	limited := &io.LimitedReader{R: src, N: rest}
	outer, ok := src.(*io.LimitedReader)
	if ok {
		limited.R, limited.N = outer.R, min(outer.N, rest)
	}
	n, err := next(limited)
	if ok {
		outer.N -= n
	}
	c.count(n)
	if err != nil || n < rest {
		return n, err
	}
	last, err := io.Copy(writerFunc(c.write), src)
	return n + last, err
}

// rest returns how many bytes the handler has still to write if the last of them must be held
// back, or 0.
func (c *recorder) rest() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.hold || c.free:
		return 0
	case c.status == 0:
		return max(0, contentLength(c.inner.Header()))
	}
	return max(0, c.length-c.sent)
}

// contentLength returns the announced length of a body, or -1.
func contentLength(h http.Header) int64 {
	n, err := strconv.ParseInt(h.Get("Content-Length"), 10, 64)
	if err != nil || n < 0 {
		return -1
	}
	return n
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// count counts bytes that were sent without recording. net/http sends no header for zero bytes.
func (c *recorder) count(n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n > 0 {
		c.begin(http.StatusOK)
	}
	c.sent += n
}

// ready prepares for a copy that is not recorded, and reports whether it is allowed, and whether
// the answer is held back.
func (c *recorder) ready() (held, open bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.open() {
		return false, false
	}
	c.settle()
	c.mayBlock()
	if c.lost {
		c.unhold()
	}
	return c.held != nil && c.held.holding, true
}

func (c *recorder) recordsBody() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.lost && c.open() && !c.free && (c.status == 0 || bodyAllowed(c.status))
}
