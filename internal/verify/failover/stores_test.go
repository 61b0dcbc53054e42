package failover_test

import (
	"testing"
	"time"
)

// A store is a row of the table.
type store struct {
	name  string
	start func(t testing.TB) deployment
	// lanes are how many deployments share the rounds of the long form.
	lanes int
	// none means that no lease may be forgotten.
	none bool
	// all means that each lease is forgotten.
	all bool
	// short is in the short form. The failovers of SQL and etcd are in verify/postgres and
	// backend/etcd.
	short bool
}

// Young servers of a RedLock grant nothing for youth, which is longer than the leases.
const (
	youth    = 6 * time.Second
	youthTTL = 5 * time.Second
)

// stores are the rows of the table.
var stores = []store{
	{
		name:  "one Redis, restarts empty",
		start: startRedis(), lanes: 1, all: true, short: true,
	},
	{
		name:  "one Redis, `appendfsync everysec`, restarts",
		start: startRedis("--appendonly", "yes", "--appendfsync", "everysec"), lanes: 1,
	},
	{
		name:  "one Redis, `appendfsync always`, restarts",
		start: startRedis("--appendonly", "yes", "--appendfsync", "always"), lanes: 1,
	},
	{
		name:  "Sentinel, a master and two replicas",
		start: startSentinel(0), lanes: 3,
	},
	{
		name:  "the same, `WithReplicas(1, …)`",
		start: startSentinel(1), lanes: 3,
	},
	{
		name:  "the same, `WithReplicas(2, …)`",
		start: startSentinel(2), lanes: 3,
	},
	{
		name:  "Cluster, three masters with a replica each",
		start: startCluster, lanes: 3,
	},
	{
		name:  "RedLock of five, one is killed",
		start: startRedlock(1, false, ttl, 0), lanes: 1, none: true,
	},
	{
		name:  "RedLock of five, two are killed",
		start: startRedlock(2, false, ttl, 0), lanes: 1, none: true, short: true,
	},
	{
		name:  "RedLock of five, three restart empty",
		start: startRedlock(3, true, ttl, 0), lanes: 1,
	},
	{
		name:  "the same, `WithMinUptime(6s)`, TTL 5 s",
		start: startRedlock(3, true, youthTTL, youth), lanes: 5, none: true,
	},
	{
		name:  "PostgreSQL, an asynchronous replica is promoted",
		start: startPostgres(false), lanes: 1,
	},
	{
		name:  "PostgreSQL, a synchronous replica is promoted",
		start: startPostgres(true), lanes: 1, none: true,
	},
	{
		name:  "MariaDB, an asynchronous replica is promoted",
		start: startMariaDB(false), lanes: 1,
	},
	{
		name:  "MariaDB, a semi-synchronous replica is promoted",
		start: startMariaDB(true), lanes: 1,
	},
	{
		name:  "Galera, two servers",
		start: startGalera, lanes: 2,
	},
	{
		name:  "etcd, three servers, the leader is killed",
		start: startEtcd, lanes: 2, none: true,
	},
	{
		name:  "SQLite, another process is killed while it writes",
		start: startSQLite, lanes: 1, none: true,
	},
}
