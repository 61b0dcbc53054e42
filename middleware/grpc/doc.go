// Package guardgrpc runs the handler of a unary gRPC call once for each key, across all processes
// that share a store. A retry of a call gets the first reply again. The handler's own code stays
// as it is.
//
//	g, err := guard.New(single.New(rdb), guard.WithNamespace("shop"))
//	once, err := guardgrpc.New(g, guardgrpc.IdempotencyKey, guardgrpc.WithScope(tenant))
//	server := grpc.NewServer(grpc.ChainUnaryInterceptor(authenticate, once))
//
// Clients send a key with each call, and the same key in its retries:
//
//	keys, err := guardgrpc.ClientKeys()
//	conn, err := grpc.NewClient(target, grpc.WithChainUnaryInterceptor(keys))
//
// What happens to a call, by default:
//
//	find its key and its scope         no key: pass it on, or INVALID_ARGUMENT (WithMethods)
//	  → acquire the key's lease        done: replay the first reply; if the request differs,
//	                                   INVALID_ARGUMENT
//	                                   busy: ABORTED, or wait for the first reply (WithWait)
//	                                   the store is away: UNAVAILABLE, or run all the same
//	                                   (WithFailOpen)
//	  → run the handler                its reply or its error is recorded
//	  → release the lease              keep the reply (WithPolicy) for 24 hours (WithOnce)
//
// [idempotency.WithMode] refuses or runs retries instead. Streaming calls are not guarded.
//
// What gRPC has in common with HTTP is in the package idempotency: most options, the modes, the
// results and the errors. New takes its options beside those of this package.
//
// # Refusals
//
// A refusal has an ErrorInfo with the domain "onerun" and the [idempotency.Result] in capitals as
// its reason. [ResultOf] reads it. ABORTED, UNAVAILABLE and RESOURCE_EXHAUSTED also have a
// RetryInfo, and the trailer grpc-retry-pushback-ms for gRPC's own retry policy. docs/grpc.md has
// the table.
//
// # Order
//
// Put the interceptor inside of those that recover from panics, authenticate, authorize and limit
// rates. Authentication and authorization come first, because a replay is worth as much as the
// reply. An interceptor inside is a part of the handler: neither runs in a replay.
//
// # Replies
//
// A replay has the same message, or the same status with its details, and the header and trailer
// metadata that the handler has set by [grpc.SetHeader], [grpc.SendHeader] and [grpc.SetTrailer].
// It does not have metadata of connections and secrets, such as set-cookie and authorization, nor
// that of [WithoutMetadata]. Its header has "idempotency-replayed: true".
//
// The interceptor records metadata by a stream of its own, so [grpc.SetSendCompressor] and
// [grpc.ClientSupportedCompressors] work in interceptors in front, but not in the handler.
//
// # Shutdown
//
// Call [grpc.Server.GracefulStop] first, and then close the Guard. [grpc.Server.Stop] ends the
// calls and not their handlers, because handlers outlive their clients. [guard.Guard.Close] ends
// the contexts of handlers that have not returned in time.
//
// # What it does not promise
//
// A process can die between the handler's side effect and the end of the call. The key is free
// again when the lease ends, and a retry runs the handler once more. So it is if the store is away
// at the end of a run for longer than the lease lasts: the client has its reply, no record is
// left, and the retry can get another reply. With [idempotency.WithAnswerAfterRecord], the client
// gets UNAVAILABLE instead.
//
// Write [guard.Fence] beside what the handler writes, so that a stale run is refused. If the side
// effect must not repeat at all, put it and its own record of the key into one transaction.
package guardgrpc
