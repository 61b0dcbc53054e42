// Package guardhttp runs an HTTP handler once for each key, across all processes that share a
// store. A retry of a request gets the first answer again. One that comes while the first is under
// way is refused or waits. The handler's own code stays as it was.
//
//	idempotent, err := guardhttp.New(g, guardhttp.IdempotencyKey, guardhttp.WithScope(tenant))
//	mux.Handle("POST /claims", idempotent(http.HandlerFunc(claim)))
//
// It follows draft-ietf-httpapi-idempotency-key-header-07, which is a draft and no RFC, for the
// Idempotency-Key header, the status codes, and the problem documents (RFC 9457) with which it
// refuses requests.
//
// # Order
//
// Put guardhttp inside of what recovers from panics, traces, authenticates, limits rates and
// compresses, and inside of http.TimeoutHandler. A replay is as good as the answer, so
// authentication comes first. A compressor inside would have its compressed bytes replayed to
// clients that cannot read them. An http.TimeoutHandler inside would end a request while its
// handler still runs: New's middleware panics if it wraps one. docs/http-frameworks.md shows what
// handlers can do behind chi, gin, echo, gorilla/mux, proxies and buffers, and has recipes for gin
// and echo.
//
// # Whose keys
//
// A key belongs to a scope (WithScope), a method and a path. If the pattern of the route has a
// host, as http.ServeMux allows, it belongs to that host, too. The host of a request alone does not
// count, because a retry may come by another name of the same service. For a router that keeps
// hosts elsewhere, make the host a part of the scope:
//
//	host := func(r *http.Request) (string, error) { return r.Host, nil }
//	guardhttp.WithScope(guardhttp.Join(tenant, host))
//
// # Answers
//
// The answer is recorded while it goes to the client, also if the handler flushes it. A replay has
// the same status, headers and body, in one piece and with its length. A stream is not recorded
// and leaves a tombstone, so that a retry learns that the handler ran: server-sent events, a
// hijacked connection, an answer with trailers or longer than WithMaxAnswer, or one for which the
// handler has called SetKeep with KeepTombstone before its first byte.
//
// A handler that returns without having written answers with an empty 200. If that is kept, it is
// sent at once. What a framework writes later is refused with an error, because a retry would not
// get it.
//
// Shut the server down first, and then close the Guard: http.Server.Shutdown waits for handlers,
// and guard.Guard.Close ends the contexts of those that have not returned in time. Cancelling a
// server's BaseContext does not reach them, because they outlive their clients.
//
// # What it does not promise
//
// A process that dies between the handler's side effect and the end of the request leaves a key
// that is free again when the lease ends, and a retry runs the handler once more. Write
// guard.Fence(ctx) beside what the handler writes, so that a stale run is refused. If the side
// effect must not repeat at all, make it and its own record of the key one transaction.
package guardhttp
