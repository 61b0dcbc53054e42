package guardhttp

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"runtime"
	"strings"
)

// Some adaptors of frameworks call the middleware with a next handler that does not write to the
// writer that it gets. The handlers of the framework have then written to a writer in front, or
// will write after the middleware has returned. To the recorder, both look like a handler that has
// written nothing. So an empty success is kept only if the writer is that of a server of net/http,
// behind wrappers that can be unwrapped or embed the writer, and nobody has written to any of them.

// errElsewhere is the cause if the handlers have answered without the writer that they got.
var errElsewhere = errors.New("guardhttp: the handler has answered past the middleware, so its answer cannot be recorded: " +
	"the adaptor of the framework does not pass on the writer; docs/http-frameworks.md has recipes")

// errFiber is the cause if Fiber's adaptor.HTTPMiddleware calls the middleware. The handlers then
// run after it has returned, so it could exclude nothing.
var errFiber = errors.New("guardhttp: Fiber's adaptor.HTTPMiddleware runs the handlers after the middleware has returned: " +
	"wrap the whole app instead, idempotent(adaptor.FiberApp(app))")

// unknownWriter returns the cause if a handler has written nothing, and a framework may answer
// later.
func unknownWriter(w http.ResponseWriter) error {
	return fmt.Errorf("guardhttp: the handler has written nothing to a %T, which is no writer of net/http and does not lead to one by an Unwrap "+
		"method or an embedded field, so its answer may come from elsewhere: call WriteHeader in the handler, or give the writer an Unwrap method", w)
}

// byFiber reports whether next is the handler of Fiber's adaptor.HTTPMiddleware.
func byFiber(next http.Handler) bool {
	f, ok := next.(http.HandlerFunc)
	if !ok {
		return false
	}
	// The compiler may have copied the function into its caller, which then names it.
	handler := runtime.FuncForPC(reflect.ValueOf(f).Pointer())
	if handler == nil {
		return false
	}
	file, _ := handler.FileLine(handler.Entry())
	return strings.Contains(handler.Name(), ".HTTPMiddleware.") && strings.Contains(file, "/gofiber/")
}

// A silence is what can be known of an answer that a handler has not begun.
type silence struct {
	err    error // why an empty answer must not be kept, or nil
	status int   // of the answer that was given elsewhere, or 0 if it is not known
}

// silenceOf looks at the writer that the middleware got, after a handler that has written nothing.
func silenceOf(w http.ResponseWriter) (s silence) {
	for range maxWriters {
		if status, begun := begunElsewhere(w); begun {
			return silence{errElsewhere, status}
		}
		inner := within(w)
		if inner == nil {
			break
		}
		w = inner
	}
	if isNil(w) || !ofNetHTTP(w) {
		s.err = unknownWriter(w)
	}
	return s
}

// within returns the writer that w wraps, by its Unwrap method or as its embedded field, or nil.
func within(w http.ResponseWriter) http.ResponseWriter {
	if u, ok := w.(unwrapper); ok {
		if inner := u.Unwrap(); inner != nil {
			return inner
		}
	}
	v := reflect.Indirect(reflect.ValueOf(w))
	if v.Kind() != reflect.Struct {
		return nil
	}
	field, ok := v.Type().FieldByName("ResponseWriter")
	if !ok || !field.Anonymous || len(field.Index) > 1 {
		return nil
	}
	inner, _ := v.FieldByIndex(field.Index).Interface().(http.ResponseWriter)
	return inner
}

// ofNetHTTP reports whether w is a writer of net/http, or httptest.ResponseRecorder.
func ofNetHTTP(w http.ResponseWriter) bool {
	t := reflect.TypeOf(w)
	if t.Kind() != reflect.Pointer {
		return false
	}
	path := t.Elem().PkgPath()
	return path == "net/http" || path == "net/http/httptest" || strings.HasSuffix(path, "golang.org/x/net/http2")
}

// begunElsewhere reports whether a writer has begun an answer, or has its status, by the methods
// that those of frameworks have. It knows the writers of net/http by their field.
func begunElsewhere(w http.ResponseWriter) (status int, begun bool) {
	if isNil(w) {
		return 0, false
	}
	switch s := w.(type) {
	case interface{ Status() int }: // gin, chi, negroni
		status = s.Status()
	case interface{ StatusCode() int }: // iris
		status = s.StatusCode()
	}
	switch s := w.(type) {
	case interface{ Written() bool }: // gin, negroni
		begun = s.Written()
	case interface{ Written() int }: // iris: -1 if nothing was written
		begun = s.Written() >= 0
	default:
		begun = ofNetHTTP(w) && wroteHeader(reflect.ValueOf(w).Elem())
	}
	if status != 0 && status != http.StatusOK {
		begun = true // of an answer that has no body, or that comes later
	}
	return status, begun
}

// wroteHeader returns the field of that name of a writer of net/http.
func wroteHeader(w reflect.Value) bool {
	if w.Kind() != reflect.Struct {
		return false
	}
	if rws := w.FieldByName("rws"); rws.Kind() == reflect.Pointer && !rws.IsNil() { // HTTP/2
		w = rws.Elem()
	}
	field := w.FieldByName("wroteHeader")
	return field.Kind() == reflect.Bool && field.Bool()
}

func isNil(w http.ResponseWriter) bool {
	v := reflect.ValueOf(w)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// http.TimeoutHandler inside of the middleware answers with status 503 and returns while its
// handler still runs. The middleware would then release the key, and a retry would run beside the
// first request.

// isTimeoutHandler reports whether h is what http.TimeoutHandler returns.
func isTimeoutHandler(h http.Handler) bool {
	return reflect.TypeOf(h).String() == "*http.timeoutHandler"
}

// ofTimeoutHandler reports whether w is the writer of an http.TimeoutHandler in front.
func ofTimeoutHandler(w http.ResponseWriter) bool {
	return reflect.TypeOf(w).String() == "*http.timeoutWriter"
}

// errTimeoutHandler is the cause if a TimeoutHandler has answered.
var errTimeoutHandler = errors.New("guardhttp: http.TimeoutHandler is inside of the middleware and has answered with status 503, " +
	"so the handler may still run: put it outside")

// byTimeoutHandler reports whether a TimeoutHandler inside of the middleware is calling. It is
// asked only about answers with status 503.
func byTimeoutHandler() bool {
	for frame := range callers {
		switch {
		case frame.Function == "net/http.(*timeoutHandler).ServeHTTP":
			return true
		case strings.HasSuffix(frame.Function, "(*exchange).pass"):
			return false
		}
	}
	return false
}

// echo.WrapMiddleware makes an echo middleware out of this one. echo answers the error of a
// handler only when all middleware has returned. Until then, a handler that has failed looks like
// one that has written nothing.

// errWrapMiddleware is the cause if a handler behind echo.WrapMiddleware has written nothing.
var errWrapMiddleware = errors.New("guardhttp: a handler behind echo.WrapMiddleware has written nothing, and may have failed: " +
	"use the recipe for echo in middleware/http/frameworks")

// byWrapMiddleware reports whether echo.WrapMiddleware has called the middleware. It is asked only
// about handlers that have written nothing, or have panicked.
func byWrapMiddleware() bool {
	outside := false // of the middleware: the frames of a handler that panics come first
	for frame := range callers {
		// The compiler may have copied the function into its caller, which then names it.
		_, closure, wrap := strings.Cut(frame.Function, ".WrapMiddleware.")
		switch {
		case strings.HasSuffix(frame.Function, "(*middleware).wrap.func1"):
			outside = true
		case outside && wrap && strings.Contains(frame.File, "/labstack/echo/"):
			// The closure that calls the handler has one more.
			return strings.Count(closure, ".") == 1
		}
	}
	return false
}

// callers yields the calls that have led here, the last one first.
func callers(yield func(runtime.Frame) bool) {
	var counters [64]uintptr
	for skip := 2; ; skip += len(counters) {
		n := runtime.Callers(skip, counters[:])
		frames := runtime.CallersFrames(counters[:n])
		for more := n > 0; more; {
			var frame runtime.Frame
			if frame, more = frames.Next(); !yield(frame) {
				return
			}
		}
		if n < len(counters) {
			return
		}
	}
}
