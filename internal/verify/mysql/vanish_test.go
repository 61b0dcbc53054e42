package mysql_test

import (
	"context"
	"database/sql"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	onerun "github.com/seed-1795987d/onerun/backend/mysql"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/mysqltest"
)

// A vanishing host sends so many packets, and then nothing, not even the end of its connections.
// The server keeps what it has locked for such a client, for hours by default.
type vanishing struct {
	packets atomic.Int64 // that it may still send
	sent    atomic.Int64
}

type vanishingConn struct {
	net.Conn
	host *vanishing
}

func (c vanishingConn) Write(p []byte) (int, error) {
	if c.host.packets.Add(-1) < 0 {
		return len(p), nil
	}
	c.host.sent.Add(1)
	return c.Conn.Write(p)
}

func (c vanishingConn) Close() error {
	_ = c.SetReadDeadline(time.Now()) // who waits for an answer gets none
	return nil
}

// open returns a client of the host. Its connections end with the test.
func (v *vanishing) open(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	config, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	config.Logger = &mysql.NopLogger{}
	config.CheckConnLiveness = false
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err == nil {
			t.Cleanup(func() { _ = conn.Close() })
		}
		return vanishingConn{conn, v}, err
	}
	connector, err := mysql.NewConnector(config)
	require.NoError(t, err)
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// Wherever a host vanishes, its keys are free when their leases have ended. So no write is a
// transaction of several statements.
func TestHost_vanishesAtAnyStatement(t *testing.T) {
	t.Parallel()
	dsn := mysqltest.Start(t).Database(t)
	other, _ := migrated(t, dsn)
	const ttl = 300 * time.Millisecond
	for packets := int64(1); ; packets++ {
		exec(t, open(t, dsn), `TRUNCATE onerun_leases`)
		for _, key := range []string{"a", "b"} { // so that they have rows
			c := claim(key, long)
			mustAcquire(t, other, c)
			_, err := other.Release(t.Context(), c, driver.After{})
			require.NoError(t, err)
		}
		var host vanishing
		host.packets.Store(1 << 30)
		l := onerun.New(host.open(t, dsn))
		_, err := l.Show(t.Context(), "a") // it knows the table
		require.NoError(t, err)
		host.packets.Store(packets)
		ctx, cancel := context.WithTimeout(t.Context(), ttl/2)
		var claims []driver.Claim
		for _, key := range []string{"a", "b", "c"} {
			c := claim(key, ttl)
			if a, err := l.TryAcquire(ctx, c); err == nil && a.State == driver.Granted {
				c.Fence = a.Fence
				claims = append(claims, c)
			}
		}
		renewed := 0
		driver.Await(ctx, l, driver.OpRenew, claims, driver.After{}, func(_ int, a driver.Answer, err error) {
			if a.Held {
				renewed++
			}
		})
		cancel()
		time.Sleep(ttl)
		for _, key := range []string{"a", "b", "c"} {
			require.Eventually(t, func() bool {
				a, err := other.TryAcquire(t.Context(), claim(key, long))
				return err == nil && a.State == driver.Granted
			}, time.Second, 10*time.Millisecond, "%q, after %d packets", key, packets)
		}
		if host.packets.Load() > 0 {
			require.Equal(t, 3, renewed)
			return
		}
	}
}
