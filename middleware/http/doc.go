// Package guardhttp runs an HTTP handler once for each key, across all processes that share a
// store: a retry of a request is given the first answer again, one that comes while the first is
// under way is refused or waits, and the handler's own code stays as it was.
//
//	idempotent, err := guardhttp.New(g, guardhttp.IdempotencyKey, guardhttp.WithScope(tenant))
//	mux.Handle("POST /claims", idempotent(http.HandlerFunc(claim)))
//
// It follows draft-ietf-httpapi-idempotency-key-header-07, which is a draft and no RFC, for the
// Idempotency-Key header, the status codes, and the problem documents (RFC 9457) that it answers
// itself.
//
// Put it behind what recovers from panics, traces, authenticates and limits rates, and before what
// compresses: a replay is as good as the answer, so whoever may not have the answer must not get
// here.
//
// Shut the server down first, and then close the Guard: http.Server.Shutdown waits for handlers,
// and guard.Guard.Close ends the contexts of those that were not done in time. Cancelling a
// server's BaseContext does not reach them, as they outlive their clients.
//
// What it does not promise: a process that dies between the handler's side effect and the end of
// the request leaves a key that is free again when the lease ends, and a retry runs the handler
// once more. Write guard.Fence(ctx) beside what the handler writes to have a stale run refused,
// and make the side effect and its own record of the key one transaction where it must not repeat
// at all.
package guardhttp
