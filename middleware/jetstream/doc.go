// Package guardjetstream runs the handler of a NATS JetStream message under a lease: once for each
// key, and one at a time, across all processes that share a store.
//
//	g, err := guard.New(single.New(rdb), guard.WithNamespace("billing"))
//	once, err := guardjetstream.New(g, nil, guardjetstream.WithConsumer(consumer),
//		guardjetstream.WithOnce(24*time.Hour))
//	consuming, err := consumer.Consume(once(charge)) // charge(ctx, msg) returns an error
//
// What happens to a message:
//
//	the KeyFunc finds its key         an error: as an error of the handler
//	                                  ErrUnguarded: it is handled without a lease
//	  → acquire the key's lease       busy: WithBusy decides, after WithWait
//	                                  done (WithOnce): it is acknowledged
//	                                  the store is unavailable: it comes back later
//	  → run the handler               an error: it comes back, as WithRetryDelay says
//	                                  ErrTerminate: it never comes back
//	  → release the lease             with WithOnce, the done marker is in the store
//	  → acknowledge                   and wait until the server has confirmed it (DoubleAck)
//
// Once it has the key, and until the lease is released or lost, the middleware sends InProgress
// often enough that the server does not deliver the message again (three times in each AckWait).
//
// # Results
//
// Hooks receive a guard.Outcome for each delivery, with the adapter "jetstream" and one of these
// results.
//
//	ran          the handler ran under a lease; Err is what it returned, guard.ErrLost, or why
//	             there may be no acknowledgement
//	unguarded    the handler ran without a lease (ErrUnguarded)
//	done         the message was acknowledged: its work was done before (WithOnce)
//	skipped      the message was acknowledged: its key was busy (Skip)
//	postponed    the message comes back: its key was busy
//	unavailable  the message comes back: the store was unavailable, or the Guard closed
//	busy         the message has failed: its key was busy (Fail)
//	refused      the message has failed: it has no usable key
//
// # What it does not promise
//
// It does not promise exactly-once. If a process dies before the done marker is in the store, the
// message is handled again. Write [guard.Fence] beside what the handler writes.
package guardjetstream
