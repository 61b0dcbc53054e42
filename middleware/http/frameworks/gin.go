package frameworks

import (
	"bufio"
	"io"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// Gin makes a gin middleware out of one of guardhttp. If a handler reports an error (Context.Error)
// and writes nothing, nothing is kept, so that a middleware in front can answer.
func Gin(idempotent func(http.Handler) http.Handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		request, writer := c.Request, c.Writer
		defer func() { c.Request, c.Writer = request, writer }()
		ran := false
		idempotent(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ran = true
			c.Request, c.Writer = r, &ginWriter{ResponseWriter: writer, to: w}
			c.Next()
			if len(c.Errors) > 0 && !c.Writer.Written() {
				idempotency.SetKeep(r.Context(), idempotency.KeepNothing)
			}
		})).ServeHTTP(writer, request)
		if !ran {
			c.Abort() // guardhttp has answered
		}
	}
}

// A ginWriter is a gin.ResponseWriter whose answer goes through guardhttp. gin's own writer keeps
// the status and the size of what guardhttp has passed on, which is after the end of the run.
type ginWriter struct {
	gin.ResponseWriter
	to      http.ResponseWriter
	status  int // the last one, until the first byte
	written bool
}

func (w *ginWriter) Header() http.Header         { return w.to.Header() }
func (w *ginWriter) Unwrap() http.ResponseWriter { return w.to }
func (w *ginWriter) Written() bool               { return w.written || w.ResponseWriter.Written() }

func (w *ginWriter) Status() int {
	if w.status == 0 || w.ResponseWriter.Written() {
		return w.ResponseWriter.Status()
	}
	return w.status
}

func (w *ginWriter) WriteHeader(status int) {
	if !w.Written() {
		w.status = status
	}
	w.to.WriteHeader(status)
}

func (w *ginWriter) Write(p []byte) (int, error) {
	w.written = true
	return w.to.Write(p)
}

func (w *ginWriter) WriteString(s string) (int, error) {
	w.written = true
	return io.WriteString(w.to, s)
}

func (w *ginWriter) WriteHeaderNow() {
	if !w.Written() {
		_, _ = w.Write(nil)
	}
}

func (w *ginWriter) Flush() {
	w.written = true
	_ = http.NewResponseController(w.to).Flush()
}

func (w *ginWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.written = true
	return http.NewResponseController(w.to).Hijack()
}
