// Package history records the calls of processes to a store, the answers, and how long each
// process believes that it holds a key. It judges the record afterwards, in three ways:
//
//	log := history.NewLog("worker 1", file)
//	g, err := guard.New(log.Record(store))
//	…
//	lease, err := g.Acquire(ctx, "k")
//	belief := log.Believe(lease)
//	…
//	belief.End()
//	lease.Release(ctx)
//
// [Overlaps] finds beliefs in one key that were live at the same time. [JudgeWrites] looks at the
// reads and writes that a [Resource], in a process of its own, was offered and has accepted.
// [Linearizable] asks porcupine whether the answers of the store are those of a lease that
// expires. [LinearizableShared] asks whether they are those of a key that several claims may hold.
//
// It runs on Linux only: instants are those of CLOCK_MONOTONIC. Only tests import it.
package history
