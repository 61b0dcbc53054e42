// Package onerun has no code. It is the map of the module, which lets one process at a time do a
// piece of work, and keeps repeats out for a time that you choose.
//
//	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
//	g, err := guard.New(single.New(rdb), guard.WithNamespace("billing"))
//	...
//	err = g.Do(ctx, "report:2026-11-21", buildReport, guard.WithOnce(24*time.Hour))
//
// # For applications
//
//   - [github.com/seed-1795987d/onerun/guard]: the Guard, its options and its errors. Start here.
//   - [github.com/seed-1795987d/onerun/middleware/http]: idempotent HTTP endpoints.
//   - [github.com/seed-1795987d/onerun/middleware/grpc]: unary gRPC calls that run once. It is a
//     module of its own.
//   - [github.com/seed-1795987d/onerun/middleware/asynq]: one task at a time for each key.
//   - [github.com/seed-1795987d/onerun/middleware/asynq/scheduler]: asynq's Scheduler, for any
//     number of replicas.
//   - [github.com/seed-1795987d/onerun/middleware/watermill] and
//     [github.com/seed-1795987d/onerun/middleware/jetstream]: a message is handled once. They are
//     modules of their own.
//   - [github.com/seed-1795987d/onerun/middleware/river]: one River job at a time for each key. It
//     is a module of its own.
//   - [github.com/seed-1795987d/onerun/middleware/cron]: jobs of robfig/cron, once for each tick.
//   - [github.com/seed-1795987d/onerun/middleware/gocron]: a Locker and an Elector for gocron v2.
//   - [github.com/seed-1795987d/onerun/tracing]: spans, metrics and logs.
//   - [github.com/seed-1795987d/onerun/inspect]: what operators see and change.
//   - [github.com/seed-1795987d/onerun/inspect/web]: a page for operators.
//   - [github.com/seed-1795987d/onerun/cmd/onerun]: a command that runs any program once, and is
//     inspect for operators. It is a module of its own, for the Redis backends.
//
// # Backends
//
//   - [github.com/seed-1795987d/onerun/backend/single]: one Redis, standalone, behind Sentinel, or
//     a Cluster.
//   - [github.com/seed-1795987d/onerun/backend/reentrant]: one Redis, with owners. It shares its
//     keys with Redisson's RLock.
//   - [github.com/seed-1795987d/onerun/backend/redlock]: a majority of three or more stores.
//   - [github.com/seed-1795987d/onerun/backend/postgres]: one PostgreSQL.
//   - [github.com/seed-1795987d/onerun/backend/mysql]: one MySQL or MariaDB.
//   - [github.com/seed-1795987d/onerun/backend/sqlite]: one file, for the processes of one host.
//   - [github.com/seed-1795987d/onerun/backend/both]: two backends at once, to move from one to the
//     other.
//   - [github.com/seed-1795987d/onerun/backend/memory]: a map, for one process and for tests.
//
// # For tests, and for your own backend
//
//   - [github.com/seed-1795987d/onerun/guard/guardtest]: the suite that every backend passes, and
//     a scripted backend for tests of applications.
//   - [github.com/seed-1795987d/onerun/guard/driver]: what a backend implements.
//
// The README in the root of the repository has a whole program, what is promised and what is not,
// and an index of the documentation.
package onerun
