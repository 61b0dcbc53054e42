package guardhttp

import (
	"errors"
	"maps"
	"net/http"

	"github.com/seed-1795987d/onerun/middleware/internal/idempotent"
)

// errEnded is the error for a goroutine of the handler that writes after the handler has returned,
// and for a framework that answers only then.
var errEnded = errors.New("guardhttp: the handler has returned, and its answer has ended with it")

// hijackedUnseen reports whether the handler has taken over the connection without the recorder:
// http.ResponseController finds the Hijacker of a writer inside of one that has none. Asking sends
// the header. c.mu must be held.
func (c *recorder) hijackedUnseen() bool {
	if !c.hidden {
		return false
	}
	_, err := c.inner.Write(nil) // nothing is kept
	if !errors.Is(err, http.ErrHijacked) {
		return false
	}
	c.take()
	return true
}

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
	return !c.hijackedUnseen()
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
	if silent || !c.hijackedUnseen() && !c.taken {
		c.start()
	}
	v := verdict{status: c.status, silent: silent, orphan: c.orphan, tardy: c.tardy, gone: c.gone}
	if !c.lost && c.length <= int64(len(c.body)) && !hasTrailers(c.inner.Header()) {
		v.answer = &idempotent.Answer{Status: c.status, Header: c.header, Body: c.body}
	}
	return v
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

// sendKept sends what is kept.
func (c *recorder) sendKept() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pass()
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

// KeepFinal is the default of WithPolicy. It keeps 2xx, 3xx and 4xx, except for those that the
// same request may not get the next time. These are 401, 403, 407, 408, 421, 423, 425, 429, and
// 499, which some servers use if the client has gone. It does not keep a refusal of another
// guardhttp behind the handler, such as that of the service behind a gateway, if the refusal has a
// Retry-After header.
func KeepFinal(status int, header http.Header) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired, http.StatusRequestTimeout,
		http.StatusMisdirectedRequest, http.StatusLocked, http.StatusTooEarly, http.StatusTooManyRequests, 499:
		return false
	}
	if header.Get(refusedHeader) != "" && header.Get("Retry-After") != "" {
		return false
	}
	return status >= 200 && status < 500
}
