package guardhttp

import (
	"errors"
	"maps"
	"net/http"
)

// abandon ends the recording of an answer that has not begun, in favor of another one, and reports
// whether it did. What the handler has set in the header is forgotten.
func (c *recorder) abandon() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.status != 0 || c.taken {
		return false
	}
	c.closed.Store(true)
	c.forget()
	return true
}

// abandoned reports, after the other answer was given, whether the handler had taken over the
// connection instead.
func (c *recorder) abandoned() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hidden {
		c.findHijack()
	}
	return !c.taken
}

// close ends the recording of a handler that has panicked or has ended its goroutine. If nothing
// was sent, a middleware that recovers may answer, perhaps through a writer that it has put in
// front of this one: it is let through if it begins with a status of 400 or above. What goroutines
// of the handler write is not.
func (c *recorder) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed.Store(true)
	unsent := c.status == 0
	if unsent {
		c.holding = false
	} else if c.drop() {
		unsent = true
		if byWrapMiddleware() {
			// echo believes that there is an answer, and does not give another one.
			c.inner.WriteHeader(http.StatusInternalServerError)
		}
	}
	if unsent && !c.taken {
		c.status = 0
		c.failed.Store(true)
	}
}

// sendEmpty sends the answer of a handler that has written nothing, so that no code can write
// another one: what is recorded and what the client gets are the same. It returns false if the
// handler had taken over the connection.
func (c *recorder) sendEmpty() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.inner.Header()
	if len(h["Content-Length"]) == 0 && !hasTrailers(h) {
		h["Content-Length"] = []string{"0"} // as net/http does; it refuses what is written later
	}
	if c.holding {
		c.called, c.written, c.sent = !c.interim, true, h.Clone()
		return true
	}
	if !c.hidden && !c.interim {
		c.inner.WriteHeader(c.status)
	}
	// Some writers send the header only with the first write.
	_, err := c.inner.Write(nil)
	return !errors.Is(err, http.ErrHijacked)
}

// passOn lets through what is written from now on: the handler has written nothing, and nothing is
// kept, so a framework may answer after it.
func (c *recorder) passOn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pass()
	c.status, c.free = 0, true
	c.closed.Store(false)
}

// discard forgets an answer that is kept, in favor of another one, and reports whether nothing of
// it was sent.
func (c *recorder) discard() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.drop()
}

// drop is discard. c.mu must be held.
func (c *recorder) drop() bool {
	held := c.holding
	c.holding, c.body = false, nil
	if held {
		c.forget()
	}
	return held
}

// forget removes the headers that the handler has set for an answer that is not sent.
func (c *recorder) forget() {
	h := c.inner.Header()
	clear(h)
	maps.Copy(h, c.before)
}
