package guardhttp

import (
	"context"
	"net/http"
	"sync"
	"time"
)

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
