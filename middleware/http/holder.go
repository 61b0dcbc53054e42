package guardhttp

import (
	"fmt"
	"maps"
	"net/http"
)

// A holder is a writer that keeps an answer until it is released. It then makes the calls that make
// up the answer. So the writer behind it, such as gin's, sends what it would have sent at once.
type holder struct {
	http.ResponseWriter      // the writer behind it
	own                 bool // net/http's own: the first status counts, with the header of then
	lenient             bool // http.TimeoutHandler's takes a body that the status does not allow
	holding             bool

	statuses []int
	header   http.Header // as it is to be sent; nil until it is settled
	body     []byte
	written  bool  // Write was called
	late     []int // statuses after it
}

func newHolder(w http.ResponseWriter) *holder {
	return &holder{ResponseWriter: w, own: sendsAtOnce(w), lenient: fmt.Sprintf("%T", w) == "*http.timeoutWriter"}
}

// WriteHeader keeps a final status. An informational one in front of it is sent at once, and one
// that is none passes, too: net/http panics.
func (h *holder) WriteHeader(status int) {
	final := len(h.statuses) > 0 || h.written || status >= http.StatusOK
	switch {
	case !h.holding || !final || status < 100 || status > 999:
		h.ResponseWriter.WriteHeader(status)
	case h.written: // too late, which net/http logs
		h.late = append(h.late, status)
	default:
		h.statuses = append(h.statuses, status)
		if h.own {
			h.settle()
		}
	}
}

func (h *holder) Write(p []byte) (int, error) {
	if !h.holding {
		return h.ResponseWriter.Write(p)
	}
	h.settle()
	if status := h.status(); status != 0 && len(p) > 0 && !h.lenient && !bodyAllowed(status) {
		return 0, http.ErrBodyNotAllowed
	}
	h.written = true
	h.body = append(h.body, p...)
	return len(p), nil
}

// settle keeps the header.
func (h *holder) settle() {
	if h.header == nil {
		h.header = h.Header().Clone()
	}
}

// status returns the status that is kept and counts, or 0 if there is none.
func (h *holder) status() int {
	switch {
	case len(h.statuses) == 0:
		return 0
	case h.own:
		return h.statuses[0]
	}
	return h.statuses[len(h.statuses)-1]
}

// Status is that of gin's writer: the last one that was set. It is 0 if the writer behind has
// none, or knows it itself.
func (h *holder) Status() int {
	behind, ok := h.ResponseWriter.(interface{ Status() int })
	switch {
	case !ok:
		return 0
	case h.holding:
		return h.status()
	}
	return behind.Status()
}

// release sends what is kept. From now on, all calls pass.
func (h *holder) release() {
	if !h.holding {
		return
	}
	h.holding = false
	if len(h.statuses) == 0 && !h.written {
		return
	}
	last := h.Header().Clone()
	if h.header != nil {
		setAll(h.Header(), h.header)
	}
	for _, status := range h.statuses {
		h.ResponseWriter.WriteHeader(status)
	}
	if h.written {
		_, _ = h.ResponseWriter.Write(h.body) // the client may have gone
	}
	for _, status := range h.late {
		h.ResponseWriter.WriteHeader(status)
	}
	h.body = nil
	setAll(h.Header(), last)
}

// drop forgets what is kept, and reports whether it was in time. From now on, all calls pass.
func (h *holder) drop() bool {
	held := h.holding
	h.holding, h.body = false, nil
	return held
}

// setAll makes h the same as another header.
func setAll(h, other http.Header) {
	clear(h)
	maps.Copy(h, other)
}
