// Package idempotent runs a call once for each key. It is what middleware/http and middleware/grpc
// share, and knows neither HTTP nor gRPC.
//
// An adapter implements [Transport], and calls [Call.Serve] for each call. Serve is the flow of a
// call: identify, acquire, run, keep, release, send.
package idempotent
