package guardhttp

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"
)

// maxWriters bounds how many writers are unwrapped: Unwrap methods may lead in a circle.
const maxWriters = 100

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

type (
	unwrapper    interface{ Unwrap() http.ResponseWriter }
	flushErrorer interface{ FlushError() error }
	deadliner    interface {
		SetReadDeadline(time.Time) error
		SetWriteDeadline(time.Time) error
	}
	duplexer interface{ EnableFullDuplex() error }
)

// ending returns w, or a writer without optional methods if the Unwrap methods of w do not end:
// http.ResponseController would look inside of it for ever.
func ending(w http.ResponseWriter) http.ResponseWriter {
	inner := w
	for range maxWriters {
		u, ok := inner.(unwrapper)
		if !ok {
			return w
		}
		inner = u.Unwrap()
	}
	return struct{ http.ResponseWriter }{w}
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

// grace is how long a client has to take the rest of an answer after the context of the handler
// has ended.
const grace = time.Second

// An interrupter ends calls of a handler that wait for its client, a moment after the context of
// the handler has ended: a client that has stopped reading, or sending, would otherwise keep its
// key for as long as it likes.
type interrupter struct {
	ctx   context.Context // the handler's; nil if there is none to watch
	q     *exchange
	mu    sync.Mutex
	over  bool
	fired bool
	unset func() bool // stops the watch; nil if there is none
}

// watch begins to wait for the end of the context. Most handlers never wait for their clients, and
// need no timer.
func (i *interrupter) watch() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ctx != nil && i.unset == nil && !i.over {
		i.unset = context.AfterFunc(i.ctx, i.interrupt)
	}
}

func (i *interrupter) interrupt() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.over {
		return
	}
	i.fired = true
	control := http.NewResponseController(i.q.w)
	// A writer that has no deadlines does not wait for a client, or cannot be helped.
	_ = control.SetWriteDeadline(time.Now().Add(grace))
	if i.q.readsConnection() {
		_ = control.SetReadDeadline(time.Now().Add(grace))
	}
}

// stop ends the watch, after the handler has returned. The connection may serve other requests, so
// it gets back the deadline that its server gives to each.
func (i *interrupter) stop() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.over {
		return
	}
	i.over = true
	if i.unset != nil {
		i.unset()
	}
	if !i.fired {
		return
	}
	var deadline time.Time
	if server, ok := i.q.r.Context().Value(http.ServerContextKey).(*http.Server); ok && server.WriteTimeout > 0 {
		deadline = i.q.start.Add(server.WriteTimeout)
	}
	_ = http.NewResponseController(i.q.w).SetWriteDeadline(deadline)
}
