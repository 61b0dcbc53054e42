package guardhttp

import (
	"maps"
	"net/http"
)

// A holder is a writer that holds an answer back until its record is in the store
// (WithAnswerAfterRecord). It keeps the calls that make up the answer, with the header as it was
// at each of them, and makes them later. So the writer behind it, such as gin's, sends what it
// would have sent at once.
type holder struct {
	http.ResponseWriter      // the writer behind it
	lenient             bool // http.TimeoutHandler's takes a body that the status does not allow
	holding             bool
	calls               []heldCall
}

// A heldCall is a call of WriteHeader, or of Write if the status is 0.
type heldCall struct {
	status int
	body   []byte
	header http.Header
}

// WriteHeader keeps a final status. An informational one in front of it is sent at once, and one
// that is none passes, too: net/http panics.
func (h *holder) WriteHeader(status int) {
	if !h.holding || status < http.StatusOK && (len(h.calls) == 0 || status < 100) || status > 999 {
		h.ResponseWriter.WriteHeader(status)
		return
	}
	h.calls = append(h.calls, heldCall{status: status, header: h.Header().Clone()})
}

func (h *holder) Write(p []byte) (int, error) {
	if !h.holding {
		return h.ResponseWriter.Write(p)
	}
	last := len(h.calls) - 1
	if last < 0 || h.calls[last].status != 0 {
		if last >= 0 && len(p) > 0 && !h.lenient && !bodyAllowed(h.calls[last].status) {
			return 0, http.ErrBodyNotAllowed
		}
		h.calls = append(h.calls, heldCall{header: h.Header().Clone()})
		last++
	}
	h.calls[last].body = append(h.calls[last].body, p...)
	return len(p), nil
}

// Status is that of gin's writer: the last one that was set. It is 0 if the writer behind has
// none, or knows it itself.
func (h *holder) Status() (status int) {
	behind, ok := h.ResponseWriter.(interface{ Status() int })
	switch {
	case !ok:
		return 0
	case !h.holding:
		return behind.Status()
	}
	for _, call := range h.calls {
		if call.status != 0 {
			status = call.status
		}
	}
	return status
}

// release makes the calls that were held back. From now on, all calls pass.
func (h *holder) release() {
	if !h.holding {
		return
	}
	h.holding = false
	last := h.Header().Clone()
	for _, call := range h.calls {
		setAll(h.Header(), call.header)
		if call.status != 0 {
			h.ResponseWriter.WriteHeader(call.status)
		} else {
			_, _ = h.ResponseWriter.Write(call.body) // the client may have gone
		}
	}
	h.calls = nil
	setAll(h.Header(), last)
}

// drop forgets the calls that were held back, and reports whether it was in time. From now on, all
// calls pass.
func (h *holder) drop() bool {
	held := h.holding
	h.holding, h.calls = false, nil
	return held
}

// setAll makes h the same as another header.
func setAll(h, other http.Header) {
	clear(h)
	maps.Copy(h, other)
}

// unhold sends what is held back of an answer that cannot be held back any more. c.mu must be
// held.
func (c *recorder) unhold() {
	if c.held != nil {
		c.held.release()
	}
}

// discard forgets an answer that was held back, in favor of another one, and reports whether
// nothing of it was sent.
func (c *recorder) discard() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == nil || !c.held.drop() {
		return false
	}
	c.last = nil
	c.forget()
	return true
}
