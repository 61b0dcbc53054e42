package guardhttp_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// contentServer serves a handler on TCP, over HTTP/1.1 or over HTTP/2 with TLS.
func contentServer(t *testing.T, h http.Handler, http2 bool, to io.Writer) (address string, client *http.Client) {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.Config.ErrorLog = log.New(to, "", 0)
	if http2 {
		server.EnableHTTP2 = true
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	client = server.Client()
	client.Timeout = 2 * lifeSoon // so that a test ends which waits in vain
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	transport := client.Transport.(*http.Transport)
	transport.DisableCompression, transport.MaxIdleConnsPerHost = true, 100
	return server.URL, client
}

// A contentLog is what net/http has said.
type contentLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *contentLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *contentLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// An httpAnswer is what a client got.
type httpAnswer struct {
	status  int
	header  http.Header
	body    string
	length  int64 // as announced, or -1
	trailer http.Header
	close   bool  // the connection ends with it
	err     error // why there is no answer, or not all of it
}

func (a httpAnswer) replayed() bool { return a.header.Get("Idempotency-Replayed") == "true" }

// requireReplayOf asserts that the answer is the first one again, and marked.
func (a httpAnswer) requireReplayOf(t *testing.T, first httpAnswer) {
	t.Helper()
	require.NoError(t, first.err)
	require.NoError(t, a.err)
	require.Equal(t, []string{"true"}, a.header["Idempotency-Replayed"])
	require.Empty(t, first.header["Idempotency-Replayed"])
	require.Equal(t, first.status, a.status)
	require.Equal(t, first.body, a.body)
	for _, name := range []string{"Content-Type", "Content-Encoding", "Location", "Etag", "Link", "Cache-Control"} {
		require.Equal(t, first.header[name], a.header[name], name)
	}
}

// do sends a request that need not be answered.
func do(client *http.Client, r *http.Request) (httpAnswer, error) {
	response, err := client.Do(r)
	if err != nil {
		return httpAnswer{}, err
	}
	return answerOf(response), nil
}

// answerOf reads the body of an answer.
func answerOf(response *http.Response) (a httpAnswer) {
	defer response.Body.Close()
	all, err := io.ReadAll(response.Body)
	return httpAnswer{response.StatusCode, response.Header, string(all), response.ContentLength, response.Trailer, response.Close, err}
}

// A contentConn is a client that sends what it likes.
type contentConn struct {
	net.Conn
	in *bufio.Reader
}

func contentDial(t *testing.T, address string) *contentConn {
	t.Helper()
	u, err := url.Parse(address)
	require.NoError(t, err)
	var conn net.Conn
	if u.Scheme == "https" {
		//nolint:gosec // the test's own server
		conn, err = tls.Dial("tcp", u.Host, &tls.Config{InsecureSkipVerify: true})
	} else {
		conn, err = net.Dial("tcp", u.Host)
	}
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(lifeSoon)))
	return &contentConn{Conn: conn, in: bufio.NewReader(conn)}
}

// say sends lines, each with a line break behind it.
func (c *contentConn) say(t *testing.T, lines ...string) {
	t.Helper()
	_, err := io.WriteString(c, strings.Join(lines, "\r\n")+"\r\n")
	require.NoError(t, err)
}

// receive reads an answer, informational ones included.
func (c *contentConn) receive(t *testing.T) httpAnswer {
	t.Helper()
	a, err := contentReceive(c.in)
	require.NoError(t, err)
	return a
}

func contentReceive(in *bufio.Reader) (httpAnswer, error) {
	response, err := http.ReadResponse(in, nil)
	if err != nil {
		return httpAnswer{}, err
	}
	return answerOf(response), nil
}
