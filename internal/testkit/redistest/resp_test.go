package redistest_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// answers has one reply of each type, nulls and nesting included.
var answers = []string{
	"+OK\r\n", "-ERR no\r\n", ":-7\r\n", "_\r\n", "#t\r\n", ",1.5\r\n", "(123456789012345678901\r\n",
	"$-1\r\n", "$0\r\n\r\n", "$6\r\na\r\nb\r\n\r\n", "!3\r\nbad\r\n", "=7\r\ntxt:abc\r\n",
	"*-1\r\n", "*0\r\n", "*2\r\n:1\r\n*1\r\n$1\r\nx\r\n", "~1\r\n+a\r\n", "%1\r\n+k\r\n*2\r\n:1\r\n:2\r\n",
	"|1\r\n+ttl\r\n:5\r\n$1\r\nv\r\n",
}

// scripted is a server that answers the same questions with the same text on each connection.
func scripted(t *testing.T, asked, text string) (addr string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.ReadFull(conn, make([]byte, len(asked)))
			_, _ = io.WriteString(conn, text)
			_, _ = io.Copy(io.Discard, conn)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-done
	})
	return listener.Addr().String()
}

// talk sends the requests through the proxy and reads until the connection ends.
func talk(t *testing.T, proxy *redistest.Proxy, sent string) (got string, err error) {
	t.Helper()
	conn, err := net.Dial("tcp", proxy.Addr())
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(soon)))
	_, err = io.WriteString(conn, sent)
	require.NoError(t, err)
	all, err := io.ReadAll(conn)
	return string(all), err
}

func TestProxy_knowsTheEndOfEachTypeOfReply(t *testing.T) {
	var sent strings.Builder
	for i := range answers {
		switch name := fmt.Sprintf("Cmd%02d", i); i % 2 { // in the two forms of a request
		case 0:
			fmt.Fprintf(&sent, "%s x\r\n", name)
		default:
			fmt.Fprintf(&sent, "*2\r\n$5\r\n%s\r\n$4\r\n\r\n\r\n\r\n", name)
		}
	}
	proxy := redistest.StartProxy(t, scripted(t, sent.String(), strings.Join(answers, "")))
	for i := range answers {
		proxy.DropReplyTo(fmt.Sprintf("cmd%02d", i), 1)
		got, err := talk(t, proxy, sent.String())
		require.ErrorIs(t, err, syscall.ECONNRESET)
		require.Equal(t, strings.Join(answers[:i], ""), got, "what was answered before %q", answers[i])
	}
}

func TestProxy_takesPushesForNoReplies(t *testing.T) {
	const confirmed = ">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n"
	const lost, kept = ">2\r\n+invalidate\r\n_\r\n", ">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n"
	const sent = "subscribe c\r\nping\r\nset k v\r\n"
	proxy := redistest.StartProxy(t, scripted(t, sent, confirmed+lost+"+PONG\r\n"+kept+"+OK\r\n"))
	proxy.DropPushes(1)
	proxy.DropReplyTo("set", 1)
	got, err := talk(t, proxy, sent)
	require.ErrorIs(t, err, syscall.ECONNRESET)
	require.Equal(t, confirmed+"+PONG\r\n"+kept, got)
}

func TestProxy_endsAConnectionThatIsNotRESP(t *testing.T) {
	const sent = "get k\r\n"
	for _, wrong := range []string{"HTTP/1.1 200 OK\r\n", "\r\n", "$x\r\n", "$-2\r\n", "*99999999999\r\n", "$?\r\n"} {
		proxy := redistest.StartProxy(t, scripted(t, sent, "+OK\r\n"+wrong+"+OK\r\n"))
		got, err := talk(t, proxy, sent)
		require.NoError(t, err)
		require.Equal(t, "+OK\r\n", got, "what came before %q", wrong)
	}
}
