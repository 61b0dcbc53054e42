package postgres_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/postgres"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/postgrestest"
)

// A slowLink is a way to a server by which each reply takes longer. dials counts connections.
type slowLink struct {
	dir          string
	delay, dials atomic.Int64
}

// slow returns a slow link to a server. It ends with the test.
func slow(t testing.TB, server *postgrestest.Server) *slowLink {
	t.Helper()
	dir, err := os.MkdirTemp("", "pg") // the path of a socket is short
	require.NoError(t, err)
	const socket = ".s.PGSQL.5432"
	listener, err := net.Listen("unix", filepath.Join(dir, socket))
	require.NoError(t, err)
	s := &slowLink{dir: dir}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			s.dials.Add(1)
			to, err := net.Dial("unix", filepath.Join(server.Dir(), socket))
			if err != nil {
				_ = client.Close()
				continue
			}
			all.Go(func() { _, _ = io.Copy(to, client); _ = to.Close() })
			all.Go(func() { s.replies(client, to) })
		}
	})
	t.Cleanup(func() { _ = listener.Close(); all.Wait(); _ = os.RemoveAll(dir) })
	return s
}

// replies passes on each reply after the delay.
func (s *slowLink) replies(client, server net.Conn) {
	type piece struct {
		bytes []byte
		at    time.Time
	}
	pieces := make(chan piece, 1000)
	var writer sync.WaitGroup
	writer.Go(func() {
		defer client.Close()
		for p := range pieces {
			time.Sleep(time.Until(p.at))
			_, _ = client.Write(p.bytes)
		}
	})
	for {
		buffer := make([]byte, 32<<10)
		n, err := server.Read(buffer)
		if err != nil {
			break
		}
		pieces <- piece{buffer[:n], time.Now().Add(time.Duration(s.delay.Load()))}
	}
	close(pieces)
	writer.Wait()
}

// open returns a client with so many connections.
func (s *slowLink) open(t testing.TB, connections int) *sql.DB {
	t.Helper()
	db := open(t, "postgres:///postgres?user=postgres&host="+s.dir)
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return db
}

// Callers that want a slow store, and leave, cost no held lease.
func TestPool_claimsDoNotStarveRenewals(t *testing.T) {
	t.Parallel()
	const ttl, held = 4 * time.Second, 20
	for _, connections := range []int{2, 4} {
		t.Run(fmt.Sprint(connections), func(t *testing.T) {
			t.Parallel()
			server := postgrestest.Start(t)
			link := slow(t, server)
			db := link.open(t, connections)
			l := postgres.New(db)
			require.NoError(t, l.Migrate(t.Context()))
			g, err := guard.New(l, guard.WithTTL(ttl))
			require.NoError(t, err)
			var leases []*guard.Lease
			for i := range held {
				lease, err := g.Acquire(t.Context(), fmt.Sprint("held", i))
				require.NoError(t, err)
				leases = append(leases, lease)
			}
			link.delay.Store(int64(400 * time.Millisecond))
			link.dials.Store(0)
			var callers sync.WaitGroup
			for i := range 200 * 3 * int(ttl/time.Second) / 2 {
				callers.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
					defer cancel()
					_ = g.Do(ctx, fmt.Sprint("call", i), func(context.Context) error { return nil })
				})
				time.Sleep(5 * time.Millisecond)
			}
			callers.Wait()
			for _, lease := range leases {
				require.NoError(t, context.Cause(lease.Context()))
			}
			require.Less(t, link.dials.Load(), int64(3*connections), "statements whose callers have left keep their connection")
			link.delay.Store(0)
			for _, lease := range leases {
				require.NoError(t, lease.Release(t.Context()))
			}
			require.NoError(t, g.Close(t.Context()))
		})
	}
}

// Transactions of the application leave a connection to renewals, and other calls are answered.
func TestPool_transactionsDoNotStarveRenewals(t *testing.T) {
	t.Parallel()
	const connections = 3
	l, db := migrated(t, postgrestest.Start(t).DSN())
	g, err := guard.New(l, guard.WithTTL(20*time.Second))
	require.NoError(t, err)
	lease, err := g.Acquire(t.Context(), "k")
	require.NoError(t, err)
	db.SetMaxOpenConns(connections) // it can change at any time
	var all sync.WaitGroup
	inside := make(chan struct{}, 2*connections)
	leave := make(chan struct{})
	for range 2 * connections {
		all.Go(func() {
			err := l.InTx(t.Context(), lease, func(*sql.Tx) error {
				inside <- struct{}{}
				<-leave
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	for range connections - 1 {
		<-inside
	}
	held, err := l.Renew(within(t, 10*time.Second), lease.Claims()[0])
	require.NoError(t, err)
	require.True(t, held)
	require.NoError(t, g.Do(within(t, 10*time.Second), "other", func(context.Context) error { return nil }))
	require.Empty(t, inside)
	close(leave)
	all.Wait()
	require.NoError(t, lease.Release(t.Context()))
	require.NoError(t, g.Close(t.Context()))
}
