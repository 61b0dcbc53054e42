package guardgrpc

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// KeepFinal is the default of WithPolicy. It keeps the codes that a repeat of the same call would
// get again: OK, INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS, FAILED_PRECONDITION and
// OUT_OF_RANGE.
//
// The other codes say that the next attempt may end differently. UNAUTHENTICATED,
// PERMISSION_DENIED and RESOURCE_EXHAUSTED depend on the caller's rights and quota. ABORTED asks
// for another attempt. CANCELLED, DEADLINE_EXCEEDED, UNKNOWN, UNIMPLEMENTED, INTERNAL, UNAVAILABLE
// and DATA_LOSS are failures of the server or of the way to it. By google.rpc.Code's mapping to
// HTTP, this is guardhttp.KeepFinal, except that ABORTED is not kept.
func KeepFinal(s *status.Status) bool {
	switch s.Code() {
	case codes.OK, codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition, codes.OutOfRange:
		return true
	default:
		return false
	}
}

// serverFailed reports whether a code says that the server has failed, by the conventions of
// OpenTelemetry for spans of gRPC servers.
func serverFailed(code codes.Code) bool {
	switch code {
	case codes.Unknown, codes.DeadlineExceeded, codes.Unimplemented, codes.Internal, codes.Unavailable, codes.DataLoss:
		return true
	default:
		return false
	}
}
