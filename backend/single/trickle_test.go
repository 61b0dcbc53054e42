package single_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// A trickle is a link to a server that passes replies on byte by byte, with a pause, once it is
// slow.
type trickle struct {
	addr string
	slow atomic.Bool
}

const tricklePause = 25 * time.Millisecond

func startTrickle(t *testing.T, target string) *trickle {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	link := &trickle{addr: listener.Addr().String()}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				_ = client.Close()
				continue
			}
			go func() { _, _ = io.Copy(server, client); _ = server.Close() }()
			go func() { link.pass(client, server); _ = client.Close() }()
		}
	}()
	return link
}

func (l *trickle) pass(to io.Writer, from io.Reader) {
	buffer := make([]byte, 4096)
	for {
		n, err := from.Read(buffer)
		for i := 0; i < n; {
			some := buffer[i:n]
			if l.slow.Load() {
				time.Sleep(tricklePause) // which makes the link slow
				some = some[:1]
			}
			if _, err := to.Write(some); err != nil {
				return
			}
			i += len(some)
		}
		if err != nil {
			return
		}
	}
}

// An answer to a renewal takes 100 ms on a link that passes a byte each 25 ms. That is far less
// than there is time for.
func TestWeekly_leasesAreRenewedOverALinkThatTrickles(t *testing.T) {
	redistest.Long(t)
	server := redistest.Start(t)
	link := startTrickle(t, server.Addr())
	const ttl = 6 * time.Second
	renewed := make(chan error, 100)
	g := newGuard(t, client(t, link.addr), guard.WithTTL(ttl), guard.WithHook(guard.Hook{
		Renew: func(_ context.Context, e guard.RenewEvent) { renewed <- e.Err },
	}))
	var leases []*guard.Lease
	for _, key := range []string{"a", "b", "c"} {
		leases = append(leases, acquire(t, g, key))
	}
	for range leases {
		require.NoError(t, <-renewed) // the server knows the script: its refusal would be long
	}
	link.slow.Store(true)
	time.Sleep(2 * ttl) // in which the leases would end twice
	link.slow.Store(false)
	for _, lease := range leases {
		require.NoError(t, context.Cause(lease.Context()))
		require.True(t, lease.Valid())
	}
}

// A multiplexed connection has time-outs of its own, as those of yamux and smux.
type multiplexed struct{ net.Conn }

func (c multiplexed) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = ownTimeout{}
	}
	return n, err
}

// ownTimeout is a net.Error that is no os.ErrDeadlineExceeded.
type ownTimeout struct{}

func (ownTimeout) Error() string   { return "i/o deadline reached" }
func (ownTimeout) Timeout() bool   { return true }
func (ownTimeout) Temporary() bool { return true }

func TestOwn_waitsForAnswersOnATransportWithItsOwnTimeouts(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
	rdb := client(t, proxy.Addr(), func(o *redis.Options) {
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			return multiplexed{conn}, err
		}
	})
	l := single.New(rdb)
	require.NoError(t, take(t.Context(), l, claimOf(1)))
	renew(t, l, claimOf(1))
	// more than once the time after which a read looks at its context
	proxy.Delay(50 * time.Millisecond)
	for range 3 {
		renew(t, l, claimOf(1))
	}
}
