package failover_test

import (
	"cmp"
	"context"
	"database/sql"
	"net"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/seed-1795987d/onerun/backend/etcd"
	onmysql "github.com/seed-1795987d/onerun/backend/mysql"
	"github.com/seed-1795987d/onerun/backend/postgres"
	"github.com/seed-1795987d/onerun/backend/redlock"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/backend/sqlite"
	"github.com/seed-1795987d/onerun/guard"
)

// A link is how a process reaches a store.
type link struct {
	Kind      string
	Addrs     []string // of the servers or sentinels, or a data source name
	TTL       time.Duration
	Replicas  int           // of a Redis that acknowledge a lease
	MinUptime time.Duration // of a Redis that grants a lease
	Migrate   bool          // makes the table
	// Direct are the addresses of servers, by those that they tell clients.
	Direct map[string]string
}

// open returns a Locker, and what closes its clients.
func (l link) open() (guard.Locker, func(), error) {
	switch l.Kind {
	case "postgres":
		return l.openSQL("pgx", func(db *sql.DB) migrator { return postgres.New(db) })
	case "mysql":
		_ = mysql.SetLogger(&mysql.NopLogger{})
		return l.openSQL("mysql", func(db *sql.DB) migrator { return onmysql.New(db) })
	case "etcd":
		client, err := clientv3.New(clientv3.Config{
			Endpoints: l.Addrs, Logger: zap.NewNop(), DialKeepAliveTime: time.Second, DialKeepAliveTimeout: time.Second,
		})
		if err != nil {
			return nil, nil, err
		}
		return etcd.New(client), func() { _ = client.Close() }, nil
	case "sqlite":
		return l.openSQL("sqlite", func(db *sql.DB) migrator { return sqlite.New(db) })
	}
	var clients []redis.UniversalClient
	switch l.Kind {
	case "sentinel":
		clients = []redis.UniversalClient{redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "primary", SentinelAddrs: l.Addrs, Dialer: l.dial})}
	case "cluster":
		clients = []redis.UniversalClient{redis.NewClusterClient(&redis.ClusterOptions{Addrs: l.Addrs, Dialer: l.dial})}
	default:
		for _, addr := range l.Addrs {
			clients = append(clients, redis.NewClient(&redis.Options{Addr: addr}))
		}
	}
	var opts []single.Option
	if l.Replicas > 0 {
		opts = append(opts, single.WithReplicas(l.Replicas, time.Second))
	}
	if l.MinUptime > 0 {
		opts = append(opts, single.WithMinUptime(l.MinUptime))
	}
	var nodes []guard.Locker
	for _, client := range clients {
		nodes = append(nodes, single.New(client, opts...))
	}
	closeAll := func() {
		for _, client := range clients {
			_ = client.Close()
		}
	}
	if l.Kind == "redlock" {
		return redlock.New(nodes), closeAll, nil
	}
	return nodes[0], closeAll, nil
}

// dial connects to a server without the lag that other servers have.
func (l link) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, cmp.Or(l.Direct[addr], addr))
}

// A migrator is a backend on a table.
type migrator interface {
	guard.Locker
	Migrate(ctx context.Context) error
}

func (l link) openSQL(driver string, locker func(db *sql.DB) migrator) (guard.Locker, func(), error) {
	db, err := sql.Open(driver, l.Addrs[0])
	if err != nil {
		return nil, nil, err
	}
	db.SetMaxOpenConns(4)
	on := locker(db)
	if l.Migrate {
		err = on.Migrate(context.Background())
	}
	return on, func() { _ = db.Close() }, err
}
