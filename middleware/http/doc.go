// Package guardhttp runs an HTTP handler once for each key, across all processes that share a
// store. A retry of a request gets the first answer again. The handler's own code stays as it is.
//
//	g, err := guard.New(single.New(rdb), guard.WithNamespace("shop"))
//	idempotent, err := guardhttp.New(g, guardhttp.IdempotencyKey, guardhttp.WithScope(tenant))
//	mux.Handle("POST /claims", idempotent(http.HandlerFunc(claim)))
//
// What happens to a request, by default:
//
//	find its key and its scope         a POST or PATCH without a key: 400
//	  → acquire the key's lease        done: replay the first answer; if the request differs, 422
//	                                   busy: 409, or wait for the first answer (WithWait)
//	                                   the store is away: 503, or run all the same (WithFailOpen)
//	  → run the handler                its answer goes to the client and is recorded
//	  → release the lease              keep the answer (WithPolicy) for 24 hours (WithOnce)
//
// [idempotency.WithMode] refuses or runs retries instead. [WithMethods] sets which methods need a
// key. By default, requests that change nothing, such as GET, are passed on.
//
// What HTTP has in common with gRPC is in the package idempotency: most options, the modes, the
// results and the errors. New takes its options beside those of this package.
//
// The header Idempotency-Key and the status codes follow
// draft-ietf-httpapi-idempotency-key-header-07, which is a draft and no RFC. Refusals are problem
// documents (RFC 9457), see [Problem].
//
// # Order
//
// Put guardhttp inside of middleware that recovers from panics, traces, authenticates, authorizes,
// limits rates, compresses or answers to origins (CORS), and inside of [http.TimeoutHandler]. The
// reasons:
//
//   - Authentication and authorization come first, because a replay is worth as much as the answer,
//     and the checks of a handler are not made for it.
//   - CORS inside would not run for a replay. A replay to another origin than the first has no
//     headers of CORS then.
//   - A compressor inside would have its compressed bytes replayed to clients that cannot read
//     them.
//   - An http.TimeoutHandler inside would end a request while its handler still runs. New's
//     middleware panics if it wraps one.
//
// docs/http-frameworks.md shows what handlers can do behind chi, gin, echo, gorilla/mux, proxies
// and buffers. It has recipes for gin and echo.
//
// # Whose keys
//
// A key belongs to a scope ([WithScope]), a method and a path. If the pattern of the route has a
// host, as [http.ServeMux] allows, the key belongs to that host, too. The host of a request alone
// does not count, because a retry may use another name of the same service. If a router keeps
// hosts elsewhere, make the host a part of the scope:
//
//	host := func(r *http.Request) (string, error) { return r.Host, nil }
//	guardhttp.WithScope(guardhttp.Join(tenant, host))
//
// # Answers
//
// The middleware keeps the answer in memory, up to [idempotency.WithMaxAnswer], and sends it when
// the handler has returned and the store has the record, as http.TimeoutHandler does. If the
// handler flushes, the client gets what it has written, and the rest as it is written; the answer
// is still recorded. If it panics, nothing of its answer is sent. A replay has the same status,
// headers and body, in one piece. Its length is announced, unless a writer of another middleware is
// in front, such as a compressor's.
//
// A stream is not recorded. It leaves a tombstone, so that a retry learns that the handler ran.
// These are streams:
//
//   - server-sent events
//   - a hijacked connection
//   - an answer with trailers, or one longer than [idempotency.WithMaxAnswer]
//   - an answer for which the handler called [idempotency.SetKeep] with
//     [idempotency.KeepTombstone] before its first byte
//
// A handler that returns without having written answers with an empty 200. If that is kept, it is
// sent at once. A framework that writes later gets an error, because a retry would not get what it
// writes.
//
// # Shutdown
//
// Shut the server down first, and then close the Guard. [http.Server.Shutdown] waits for handlers.
// [guard.Guard.Close] ends the contexts of handlers that have not returned in time. Cancelling a
// server's BaseContext does not reach handlers, because they outlive their clients.
//
// # What it does not promise
//
// A process can die between the handler's side effect and the end of the request. The key is free
// again when the lease ends, and a retry runs the handler once more. So it is if the store is away
// at the end of a run for longer than the lease lasts: the client gets its answer, no record is
// left, and the retry can get another answer. With [idempotency.WithAnswerAfterRecord], an answer
// without a record is not sent.
//
// Write [guard.Fence] beside what the handler writes, so that a stale run is refused. If the side
// effect must not repeat at all, put it and its own record of the key into one transaction.
package guardhttp
