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

func TestLine_delaysAndLosesWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	const lag = 50 * time.Millisecond
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	line := lagtest.Start(t, "tcp", "127.0.0.1:0", listener.Addr().String(), lag)
	client, err := net.Dial("tcp", line.Addr())
	require.NoError(t, err)
	defer client.Close()
	server, err := listener.Accept()
	require.NoError(t, err)

	sent := time.Now()
	_, err = server.Write([]byte("first"))
	require.NoError(t, err)
	got := make([]byte, 5)
	_, err = io.ReadFull(client, got)
	require.NoError(t, err)
	require.Equal(t, "first", string(got))
	require.GreaterOrEqual(t, time.Since(sent), lag)

	_, err = server.Write([]byte("second"))
	require.NoError(t, err)
	require.NoError(t, server.Close())
	rest, _ := io.ReadAll(client) // it may be a reset
	require.Empty(t, rest)
}
