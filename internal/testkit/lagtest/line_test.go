package lagtest_test

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-1795987d/onerun/internal/testkit/lagtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLine_delays(t *testing.T) {
	t.Parallel()
	const lag = 50 * time.Millisecond
	server, client := connect(t, lag)
	sent := time.Now()
	_, err := server.Write([]byte("first"))
	require.NoError(t, err)
	got := make([]byte, 5)
	_, err = io.ReadFull(client, got)
	require.NoError(t, err)
	require.Equal(t, "first", string(got))
	require.GreaterOrEqual(t, time.Since(sent), lag)
}

func TestLine_losesWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	server, client := connect(t, time.Hour)
	_, err := server.Write([]byte("first"))
	require.NoError(t, err)
	require.NoError(t, server.Close())
	rest, _ := io.ReadAll(client) // it may be a reset
	require.Empty(t, rest)
}

// connect returns both ends of a connection through a Line.
func connect(t *testing.T, lag time.Duration) (server, client net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	client, err = net.Dial("tcp", lagtest.Start(t, "tcp", "127.0.0.1:0", listener.Addr().String(), lag).Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	server, err = listener.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Close() })
	return server, client
}
