package guardhttp

import (
	"errors"
	"runtime"
	"strings"
)

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
