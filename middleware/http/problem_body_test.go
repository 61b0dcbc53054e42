package guardhttp_test

import (
	"net/http"
	"net/http/httptrace"
	"testing"

	"github.com/stretchr/testify/require"

	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// 413 says that the connection ends, so that the rest of the body need not be sent.
func TestProblem_tooLargeClosesTheConnection(t *testing.T) {
	t.Parallel()
	site := contentMemory(t).site(t, contentSetup{handler: contentEcho, opts: []guardhttp.Option{guardhttp.WithMaxBody(3)}})
	conn := site.dial(t)
	conn.say(t, "POST /things HTTP/1.1", "Host: a", "X-Tenant: acme", "Idempotency-Key: k", "Transfer-Encoding: chunked", "", "4", "body")
	a := conn.receive(t)
	requireProblem(t, a, 413, idempotency.BodyTooLarge)
	require.True(t, a.close)
}

// Over HTTP/2 the connection is that of other requests, too.
func TestProblem_tooLargeKeepsAConnectionOfHTTP2(t *testing.T) {
	t.Parallel()
	site := contentMemory(t).site(t, contentSetup{http2: true, handler: contentEcho, opts: []guardhttp.Option{guardhttp.WithMaxBody(3)}})
	for i := range 3 {
		reused := false
		a := site.post(t, "k", "a body", func(r *http.Request) {
			*r = *r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
				GotConn: func(c httptrace.GotConnInfo) { reused = c.Reused }}))
		})
		requireProblem(t, a, 413, idempotency.BodyTooLarge)
		require.Equal(t, i > 0, reused)
	}
}
