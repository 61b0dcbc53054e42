package guardhttp

import (
	"errors"
	"net/http"
	"reflect"
	"strings"
)

// errElsewhere is the cause if a handler of fasthttp runs after the middleware has returned.
var errElsewhere = errors.New("guardhttp: the handler has written nothing to a writer of fasthttp, so its answer was given elsewhere " +
	"(as with Fiber's adaptor.HTTPMiddleware): wrap the whole app instead, idempotent(adaptor.FiberApp(app))")

// answersElsewhere reports whether w, or a writer inside of it, belongs to an adaptor of fasthttp.
// A handler may answer there without w, and after the middleware has returned.
func answersElsewhere(w http.ResponseWriter) bool {
	for {
		t := reflect.TypeOf(w)
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		for _, part := range []string{"github.com/valyala/fasthttp", "github.com/gofiber/"} {
			if strings.HasPrefix(t.PkgPath(), part) {
				return true
			}
		}
		inner, ok := w.(unwrapper)
		if !ok {
			return false
		}
		w = inner.Unwrap()
	}
}
