package guardhttp

import (
	"errors"
	"net/http"
	"reflect"
	"strings"
)

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
