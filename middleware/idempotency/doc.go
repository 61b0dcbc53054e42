// Package idempotency has what guardhttp and guardgrpc share: the modes, the results, the errors,
// the options that mean the same in both, and what handlers and observers use.
//
//	once, err := guardhttp.New(g, guardhttp.IdempotencyKey,
//		guardhttp.WithScope(tenant),
//		idempotency.WithOnce(7*24*time.Hour),
//		idempotency.WithWait(5*time.Second))
//
// A call is an HTTP request, or a unary call of gRPC. An answer is an HTTP response, or the reply
// or the error of a gRPC call. Where the two transports differ, HTTP is named first: a refusal with
// "409, ABORTED" has the status 409 in HTTP and the code ABORTED in gRPC.
package idempotency
