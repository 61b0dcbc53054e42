// Package guardwatermill runs the handlers of Watermill once for each key, and one at a time,
// across all processes that share a store. The handlers stay as they are.
//
//	g, err := guard.New(single.New(rdb), guard.WithNamespace("billing"))
//	once, err := guardwatermill.New(g, guardwatermill.FromMetadata("event_id"),
//		guardwatermill.WithOnce(24*time.Hour))
//	router.AddMiddleware(middleware.Recoverer, once)
//
// What happens to a message:
//
//	the KeyFunc finds its key         ErrUnguarded: it is handled without a lease
//	  → acquire the key's lease       busy: it waits (WithWait), then WithBusy decides
//	                                  done: the messages that the first run has produced again
//	  → run the handler               error, panic, lost lease: no marker
//	  → keep the produced messages    in the done marker of WithOnce
//	  → release the lease             the next message of the key is handled, in any process
//
// # Why
//
// Brokers deliver at least once. A message comes again if its handler is slower than the broker's
// timeout, if a consumer dies or the group is rebalanced, or if its producer has sent it twice. The
// router publishes what a handler has produced after the handler, and acknowledges the message
// after that. A marker that only said "done" would lose the produced messages if publishing fails.
// Here the marker has them, so that the next delivery publishes them, with the same UUIDs.
//
// # Options
//
// Most programs need [New], a [KeyFunc] and [WithOnce]. [WithWait], [WithDelay] and [WithBusy]
// decide what a message does while another one of its key is handled.
//
// # Results
//
// Hooks receive a guard.Outcome for each delivery, with the adapter "watermill" and one of these
// results. ctx is the message's.
//
//	ran          the handler ran under a lease; Err is what it returned, or guard.ErrLost
//	unguarded    the handler ran without a lease (ErrUnguarded)
//	done         its work was done before (WithOnce): what was produced is published again
//	skipped      it was acknowledged: its key was busy (Skip)
//	postponed    it comes again: its key was busy
//	unavailable  it comes again: the store was unavailable, or the Guard was closed
//	busy         it has failed: its key was busy (Fail)
//	refused      it has failed: no usable key, or a record that cannot be read
//	canceled     it comes again: its context ended before its handler began
//
// For a message that comes again, Err is a [*PostponedError].
//
// # What it does not promise
//
// It does not promise exactly-once. If a process dies inside of the handler, the message is handled
// again. If a process dies after it has published, and before the broker knows, the produced
// messages are published again, with the same UUIDs. A process that is paused for longer than its
// lease can believe for a moment that it still holds the lease. Write [guard.Fence] beside what the
// handler writes.
package guardwatermill
