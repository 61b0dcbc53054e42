package mysql_test

import (
	"context"
	"database/sql"
	"math"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	onerun "github.com/seed-1795987d/onerun/backend/mysql"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/sqltest"
)

// A vanishing host sends so many packets, and then nothing, not even the end of its connections.
// Its context ends when it vanishes. The server keeps what it has locked for such a client, for
// hours by default.
type vanishing struct {
	packets atomic.Int64 // that it may still send
	ctx     context.Context
	vanish  context.CancelFunc
}

func newVanishing(t testing.TB) *vanishing {
	t.Helper()
	v := &vanishing{}
	v.packets.Store(math.MaxInt64)
	v.ctx, v.vanish = context.WithCancel(t.Context())
	t.Cleanup(v.vanish)
	return v
}

type vanishingConn struct {
	net.Conn
	host *vanishing
}

func (c vanishingConn) Write(p []byte) (int, error) {
	if c.host.packets.Add(-1) < 0 {
		c.host.vanish()
		return len(p), nil
	}
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
func hostVanishesAtAnyStatement(t *testing.T, dsn string) {
	other, db := migrated(t, dsn)
	keys := []string{"a", "b", "c"}
	for packets := int64(1); ; packets++ {
		exec(t, db, `TRUNCATE onerun_leases`)
		for _, key := range keys[:2] { // so that they have rows
			sqltest.MustRelease(t, other, mustAcquire(t, other, claim(key, long)).Claim)
		}
		host := newVanishing(t)
		l := onerun.New(host.open(t, dsn))
		_, err := l.Show(t.Context(), "a") // it knows the table
		require.NoError(t, err)
		host.packets.Store(packets)
		var claims []driver.Claim
		for _, key := range keys {
			c := claim(key, long)
			if a, err := l.TryAcquire(host.ctx, c); err == nil && a.State == driver.Granted {
				c.Fence = a.Fence
				claims = append(claims, c)
			}
		}
		renewed := 0
		driver.Await(host.ctx, l, driver.OpRenew, claims, driver.After{}, func(_ int, a driver.Answer, err error) {
			if a.Held {
				renewed++
			}
		})
		for _, key := range keys {
			c := claim(key, long)
			require.Eventually(t, func() bool { // the last statement of the host may still run
				ctx := within(t, 5*time.Second)
				// It waits for locks. If it fails, the claim does, too.
				_, _ = db.ExecContext(ctx, `UPDATE onerun_leases SET ends = 0 WHERE state = 'held'`)
				a, err := other.TryAcquire(ctx, c)
				return err == nil && a.State == driver.Granted
			}, 20*time.Second, 10*time.Millisecond, "%q, after %d packets", key, packets)
		}
		if host.ctx.Err() == nil {
			require.Equal(t, len(keys), renewed)
			return
		}
	}
}
