package frameworks

import (
	"bufio"
	"io"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"

	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
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
			if len(c.Errors) > 0 && !writer.Written() {
				guardhttp.SetKeep(r.Context(), guardhttp.KeepNothing)
			}
		})).ServeHTTP(writer, request)
		if !ran {
			c.Abort() // guardhttp has answered
		}
	}
}

// A ginWriter is a gin.ResponseWriter whose answer goes through guardhttp. gin's own writer keeps
// the status and the size.
type ginWriter struct {
	gin.ResponseWriter
	to http.ResponseWriter
}

func (w *ginWriter) Header() http.Header               { return w.to.Header() }
func (w *ginWriter) WriteHeader(status int)            { w.to.WriteHeader(status) }
func (w *ginWriter) Write(p []byte) (int, error)       { return w.to.Write(p) }
func (w *ginWriter) WriteString(s string) (int, error) { return io.WriteString(w.to, s) }
func (w *ginWriter) Unwrap() http.ResponseWriter       { return w.to }

func (w *ginWriter) WriteHeaderNow() {
	if !w.Written() {
		_, _ = w.to.Write(nil)
	}
}

func (w *ginWriter) Flush() { _ = http.NewResponseController(w.to).Flush() }

func (w *ginWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.to).Hijack()
}
