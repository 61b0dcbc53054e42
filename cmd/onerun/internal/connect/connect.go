package connect

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/seed-1795987d/onerun/backend/redlock"
	"github.com/seed-1795987d/onerun/backend/reentrant"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// The backends.
const (
	Single    = "single"
	Reentrant = "reentrant"
	RedLock   = "redlock"
)

// Config is what the user names.
type Config struct {
	URLs    []string
	Backend string // "" is Single
	TLS     TLS
	Plain   string // names of locks of other libraries: %s stands for the key; "" for none
	// Create says that a file of SQLite that does not exist is created.
	Create bool
}

// Servers are clients of the servers, and the backend over them.
type Servers struct {
	// Clients has one client, or one for each node of a RedLock.
	Clients []redis.UniversalClient
	// DB and Table are nil on Redis and etcd, and there are no Clients on other stores than Redis.
	DB     *sql.DB
	Table  Table
	Etcd   *clientv3.Client // nil on other stores
	Locker guard.Locker
	// Address names the database or the servers of etcd without a user and a password, and
	// TableName the table of the leases. They are empty where there is none.
	Address, TableName string
	// Unverified says that a PostgreSQL, MySQL or etcd is on the network, and that its certificate
	// is not checked.
	Unverified bool
	// Plain are the options of single on these servers.
	Plain []single.Option
}

// A Table is a Locker on a database that speaks SQL.
type Table interface {
	guard.Locker
	driver.Describer
	driver.Warner
	// Migrate creates the table.
	Migrate(ctx context.Context) error
	// Clean deletes up to limit old rows.
	Clean(ctx context.Context, limit int) (deleted int, err error)
}

// Nodes is how many stores have the leases: those of a quorum, or one.
func (s *Servers) Nodes() int { return max(len(s.Clients), 1) }

// HasTable reports whether the table can be read.
func (s *Servers) HasTable(ctx context.Context) bool {
	quote := `"`
	if s.Table.Describe().Name == "mysql" {
		quote = "`"
	}
	name := quote + strings.ReplaceAll(s.TableName, ".", quote+"."+quote) + quote
	_, err := s.DB.ExecContext(ctx, "SELECT 1 FROM "+name+" WHERE 1 = 0")
	return err == nil
}

// Open returns clients for the URLs. It does not connect them, except to an etcd whose URL has a
// password. Its errors name the flag, and no password. The caller must call Close.
func Open(c Config) (*Servers, error) {
	if len(c.URLs) == 0 {
		return nil, errors.New("--redis: is missing; ONERUN_REDIS, --store and ONERUN_STORE can name the store as well")
	}
	s := &Servers{}
	for _, store := range []struct {
		is   func(address string) bool
		open func(c Config) error
	}{{isPostgres, s.openPostgres}, {isMySQL, s.openMySQL}, {isSQLite, s.openSQLite}, {isEtcd, s.openEtcd}} {
		if !slices.ContainsFunc(c.URLs, store.is) {
			continue
		}
		if err := store.open(c); err != nil {
			_ = s.Close()
			return nil, err
		}
		return s, nil
	}
	var err error
	if s.Plain, err = plainOptions(c); err != nil {
		return nil, err
	}
	groups := [][]string{c.URLs}
	if c.Backend == RedLock {
		groups = nil
		for _, address := range c.URLs {
			groups = append(groups, []string{address})
		}
	}
	for _, group := range groups {
		client, err := open(group, c.TLS)
		if err != nil {
			_ = s.Close()
			return nil, err
		}
		s.Clients = append(s.Clients, client)
	}
	switch c.Backend {
	case Single, "":
		s.Locker = single.New(s.Clients[0], s.Plain...)
	case Reentrant:
		s.Locker = reentrant.New(s.Clients[0])
	case RedLock:
		var nodes []guard.Locker
		for _, client := range s.Clients {
			nodes = append(nodes, single.New(client, s.Plain...))
		}
		s.Locker = redlock.New(nodes)
	default:
		_ = s.Close()
		return nil, fmt.Errorf("--backend: %q is not single, reentrant or redlock", c.Backend)
	}
	return s, nil
}

// Close closes the clients.
func (s *Servers) Close() error {
	all := []error{closeDB(s.DB)}
	if s.Etcd != nil {
		all = append(all, s.Etcd.Close())
	}
	for _, client := range s.Clients {
		all = append(all, client.Close())
	}
	return errors.Join(all...)
}

// open returns the client of one Redis: a server, the master behind a Sentinel, or a Cluster.
func open(addresses []string, files TLS) (redis.UniversalClient, error) {
	kinds, urls := make([]kind, len(addresses)), make([]string, len(addresses))
	for i, address := range addresses {
		var err error
		if kinds[i], urls[i], err = kindOf(address); err != nil {
			return nil, badURL(i, len(addresses), err)
		}
	}
	if len(urls) > 1 || kinds[0] == cluster {
		if slices.Contains(kinds, sentinel) {
			return nil, errors.New("--redis: several URLs name the nodes of a Cluster (or of a RedLock, " +
				"with --backend redlock); put all Sentinels into one URL, as in " +
				"redis+sentinel://host:26379,host:26379/mymaster/0")
		}
		o, err := parseCluster(urls)
		if err != nil {
			return nil, badURL(0, len(urls), err)
		}
		if err := files.apply(o.TLSConfig); err != nil {
			return nil, err
		}
		o.ContextTimeoutEnabled = true
		return redis.NewClusterClient(o), nil
	}
	if kinds[0] == sentinel {
		o, err := parseSentinel(urls[0])
		if err != nil {
			return nil, badURL(0, 1, err)
		}
		if err := files.apply(o.TLSConfig); err != nil {
			return nil, err
		}
		o.ContextTimeoutEnabled = true
		return redis.NewFailoverClient(o), nil
	}
	o, err := parseServer(urls[0])
	if err != nil {
		return nil, badURL(0, 1, err)
	}
	if err := files.apply(o.TLSConfig); err != nil {
		return nil, err
	}
	o.ContextTimeoutEnabled = true
	return redis.NewClient(o), nil
}

// badURL returns the error of the i-th of n URLs, without the URL, which may have a password.
func badURL(i, n int, err error) error {
	if n == 1 {
		return fmt.Errorf("--redis: the URL cannot be used: %w", err)
	}
	return fmt.Errorf("--redis: URL %d of %d cannot be used: %w", i+1, n, err)
}
