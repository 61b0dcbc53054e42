package slow_test

import (
	"context"
	"database/sql"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/seed-1795987d/onerun/backend/etcd"
	onmysql "github.com/seed-1795987d/onerun/backend/mysql"
	"github.com/seed-1795987d/onerun/backend/postgres"
	"github.com/seed-1795987d/onerun/backend/redlock"
	"github.com/seed-1795987d/onerun/backend/reentrant"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/etcdtest"
	"github.com/seed-1795987d/onerun/internal/testkit/mysqltest"
	"github.com/seed-1795987d/onerun/internal/testkit/postgrestest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// An opened is a Locker on a link. connect makes connections that a call does not wait for.
type opened struct {
	link    *link
	locker  guard.Locker
	connect func(ctx context.Context) error
}

// A store is a row of the table. cold and warm say how long a round trip may take, as parts of the
// TTL: for the first call of a process, and for one that has connections.
type store struct {
	name       string
	cold, warm time.Duration
	start      func(t testing.TB) (open func(t testing.TB) opened)
}

var stores = []store{
	{"`single`", 12, 4, startRedis(func(rdb redis.UniversalClient) guard.Locker { return single.New(rdb) })},
	{"`reentrant`", 12, 4, startRedis(func(rdb redis.UniversalClient) guard.Locker { return reentrant.New(rdb) })},
	{"`single` on a Cluster", 16, 4, startCluster},
	{"`single` behind Sentinel", 25, 4, startSentinel},
	{"`redlock`", 16, 5, startRedlock},
	{"`postgres`", 14, 5, startPostgres()},
	{"`postgres`, pgx without pings", 14, 4, startPostgres(stdlib.OptionShouldPing(
		func(context.Context, stdlib.ShouldPingParams) bool { return false }))},
	{"`mysql`", 12, 4, startMySQL},
	{"`etcd`", 12, 6, startEtcd},
}

func (l *link) opens(locker guard.Locker) opened {
	return opened{l, locker, func(context.Context) error { return nil }}
}

func (l *link) redis(t testing.TB, s *redistest.Server) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: s.Addr(), Dialer: l.dial})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func startRedis(on func(redis.UniversalClient) guard.Locker) func(testing.TB) func(testing.TB) opened {
	return func(t testing.TB) func(testing.TB) opened {
		server := redistest.Start(t)
		return func(t testing.TB) opened {
			l := newLink(t)
			return l.opens(on(l.redis(t, server)))
		}
	}
}

func startCluster(t testing.TB) func(testing.TB) opened {
	cluster := redistest.StartCluster(t)
	return func(t testing.TB) opened {
		l := newLink(t)
		return l.opens(single.New(cluster.Client(t, func(o *redis.ClusterOptions) { o.Dialer, o.DisableIdentity = l.dial, false })))
	}
}

func startSentinel(t testing.TB) func(testing.TB) opened {
	sentinel := redistest.StartSentinel(t)
	return func(t testing.TB) opened {
		l := newLink(t)
		return l.opens(single.New(sentinel.Client(t, func(o *redis.FailoverOptions) { o.Dialer, o.DisableIdentity = l.dial, false })))
	}
}

func startRedlock(t testing.TB) func(testing.TB) opened {
	servers := redistest.StartN(t, 3)
	return func(t testing.TB) opened {
		l := newLink(t)
		var clients []*redis.Client
		var nodes []guard.Locker
		for _, s := range servers {
			client := l.redis(t, s)
			clients, nodes = append(clients, client), append(nodes, single.New(client))
		}
		connect := func(ctx context.Context) error { // a call does not wait for all nodes
			for _, client := range clients {
				if err := client.Ping(ctx).Err(); err != nil {
					return err
				}
			}
			return nil
		}
		return opened{l, redlock.New(nodes), connect}
	}
}

func startPostgres(opts ...stdlib.OptionOpenDB) func(testing.TB) func(testing.TB) opened {
	return func(t testing.TB) func(testing.TB) opened {
		config, err := pgx.ParseConfig(postgrestest.Start(t).DSN())
		require.NoError(t, err)
		admin := stdlib.OpenDB(*config)
		defer admin.Close()
		require.NoError(t, postgres.New(admin).Migrate(t.Context()))
		return func(t testing.TB) opened {
			l, slow := newLink(t), config.Copy()
			slow.DialFunc = l.dial
			db := stdlib.OpenDB(*slow, opts...)
			t.Cleanup(func() { _ = db.Close() })
			return l.opens(postgres.New(db))
		}
	}
}

func startMySQL(t testing.TB) func(testing.TB) opened {
	config, err := mysql.ParseDSN(mysqltest.Start(t).Database(t))
	require.NoError(t, err)
	config.Logger = &mysql.NopLogger{}
	open := func(t testing.TB, dial func(ctx context.Context, network, addr string) (net.Conn, error)) *sql.DB {
		c := config.Clone()
		c.DialFunc = dial
		connector, err := mysql.NewConnector(c)
		require.NoError(t, err)
		db := sql.OpenDB(connector)
		t.Cleanup(func() { _ = db.Close() })
		return db
	}
	require.NoError(t, onmysql.New(open(t, nil)).Migrate(t.Context()))
	return func(t testing.TB) opened {
		l := newLink(t)
		return l.opens(onmysql.New(open(t, l.dial)))
	}
}

func startEtcd(t testing.TB) func(testing.TB) opened {
	server := etcdtest.Start(t)
	return func(t testing.TB) opened {
		l := newLink(t)
		dial := func(ctx context.Context, addr string) (net.Conn, error) {
			return l.dial(ctx, "tcp", strings.TrimPrefix(addr, "http://"))
		}
		client, err := clientv3.New(clientv3.Config{Endpoints: server.Endpoints(), DialOptions: []grpc.DialOption{grpc.WithContextDialer(dial)}})
		require.NoError(t, err)
		t.Cleanup(func() { _ = client.Close() })
		return l.opens(etcd.New(client))
	}
}
