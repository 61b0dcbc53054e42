package guardhttp_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// streamsInterfaces are the optional interfaces that a type assertion finds in a writer.
func streamsInterfaces(w http.ResponseWriter) string {
	var found []string
	note := func(name string, ok bool) {
		if ok {
			found = append(found, name)
		}
	}
	_, ok := w.(http.Flusher)
	note("Flusher", ok)
	_, ok = w.(interface{ FlushError() error })
	note("FlushError", ok)
	_, ok = w.(http.Hijacker)
	note("Hijacker", ok)
	_, ok = w.(io.ReaderFrom)
	note("ReaderFrom", ok)
	_, ok = w.(io.StringWriter)
	note("StringWriter", ok)
	_, ok = w.(http.Pusher)
	note("Pusher", ok)
	_, ok = w.(http.CloseNotifier) //nolint:staticcheck // old handlers ask for it
	note("CloseNotifier", ok)
	_, ok = w.(interface{ SetReadDeadline(time.Time) error })
	note("SetReadDeadline", ok)
	_, ok = w.(interface{ SetWriteDeadline(time.Time) error })
	note("SetWriteDeadline", ok)
	_, ok = w.(interface{ EnableFullDuplex() error })
	note("EnableFullDuplex", ok)
	return strings.Join(found, " ")
}

// streamsHidden is a foreign writer that has no optional method but Unwrap.
type streamsHidden struct{ inner http.ResponseWriter }

func (w streamsHidden) Header() http.Header { return w.inner.Header() }

func (w streamsHidden) Write(p []byte) (int, error) { return w.inner.Write(p) }

func (w streamsHidden) WriteHeader(status int) { w.inner.WriteHeader(status) }

func (w streamsHidden) Unwrap() http.ResponseWriter { return w.inner }

// streamsFlusher has a Flush without an error.
type streamsFlusher struct{ streamsHidden }

func (w streamsFlusher) Flush() { _ = http.NewResponseController(w.inner).Flush() }

// streamsDeadliner has deadlines, and handles them itself.
type streamsDeadliner struct{ streamsHidden }

var errStreamsDeadline = errors.New("no deadlines here")

func (w streamsDeadliner) SetReadDeadline(time.Time) error { return errStreamsDeadline }

func (w streamsDeadliner) SetWriteDeadline(time.Time) error { return errStreamsDeadline }

// streamsHijacker has only a method that takes over its connection.
type streamsHijacker struct{ streamsHidden }

func (w streamsHijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.inner).Hijack()
}

// streamsOpaque shows nothing at all.
type streamsOpaque struct{ http.ResponseWriter }

// streamsBehind puts every request's writer into another one.
func streamsBehind(hide func(http.ResponseWriter) http.ResponseWriter) func(http.Handler) http.Handler {
	return func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(hide(w), r) })
	}
}

var streamsWriters = map[string]func(http.Handler) http.Handler{
	"net/http":        func(h http.Handler) http.Handler { return h },
	"hidden":          streamsBehind(func(w http.ResponseWriter) http.ResponseWriter { return streamsHidden{w} }),
	"only a Flusher":  streamsBehind(func(w http.ResponseWriter) http.ResponseWriter { return streamsFlusher{streamsHidden{w}} }),
	"only deadlines":  streamsBehind(func(w http.ResponseWriter) http.ResponseWriter { return streamsDeadliner{streamsHidden{w}} }),
	"only a Hijacker": streamsBehind(func(w http.ResponseWriter) http.ResponseWriter { return streamsHijacker{streamsHidden{w}} }),
	"opaque":          streamsBehind(func(w http.ResponseWriter) http.ResponseWriter { return streamsOpaque{w} }),
	"TimeoutHandler":  func(h http.Handler) http.Handler { return http.TimeoutHandler(h, lifeSoon, "") },
	"lazy":            behindLazy,
	"outer":           behindOuter,
	"hidden, flusher": streamsBehind(func(w http.ResponseWriter) http.ResponseWriter {
		return streamsFlusher{streamsHidden{streamsHidden{w}}}
	}),
}

// streamsFlushes are the ways to flush.
var streamsFlushes = map[string]func(w http.ResponseWriter){
	"Flusher":    func(w http.ResponseWriter) { w.(http.Flusher).Flush() },
	"FlushError": func(w http.ResponseWriter) { streamsMust(w.(interface{ FlushError() error }).FlushError()) },
	"controller": func(w http.ResponseWriter) { streamsMust(http.NewResponseController(w).Flush()) },
}

// streamsMust panics, and so aborts the handler, if something fails that must not.
func streamsMust(err error) {
	if err != nil {
		panic(err)
	}
}

// mountBehind puts the middleware behind others.
func mountBehind(behind func(http.Handler) http.Handler) func(func(http.Handler) http.Handler, http.Handler) http.Handler {
	return func(idempotent func(http.Handler) http.Handler, h http.Handler) http.Handler {
		return behind(idempotent(h))
	}
}
