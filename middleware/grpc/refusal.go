package guardgrpc

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/seed-1795987d/onerun/middleware/idempotency"
	"github.com/seed-1795987d/onerun/middleware/internal/idempotent"
)

// errorDomain is the domain of the ErrorInfo of refusals.
const errorDomain = "onerun"

// A refusal is what the interceptor says itself: nothing that the client has sent, and nothing
// about the store.
type refusal struct {
	code    codes.Code
	message string
}

var refusals = map[idempotency.Result]refusal{
	idempotency.KeyMissing: {codes.InvalidArgument,
		"the call needs a key that says which calls are the same one: send one, and the same one in a retry"},
	idempotency.KeyInvalid: {codes.InvalidArgument, "the key that says which calls are the same one cannot be used"},
	idempotency.Mismatch: {codes.InvalidArgument,
		"the key was used for a call that was not the same as this one: send a new key with a new call"},
	idempotency.InFlight:      {codes.Aborted, "the first call with the key has not ended yet: try again later, with the same key"},
	idempotency.Done:          {codes.AlreadyExists, "a call with the key was processed, and is not processed again"},
	idempotency.NotReplayable: {codes.AlreadyExists, "a call with the key was processed, and its reply was not kept or cannot be read"},
	idempotency.BodyInvalid:   {codes.InvalidArgument, "the request is not what it should be"},
	idempotency.Refused:       {codes.Internal, "the server could not find out whose call this is, or which: it was not processed"},
	idempotency.Unavailable: {codes.Unavailable,
		"the server cannot tell whether the call was processed before: it was not processed now; try again later, with the same key"},
	idempotency.Canceled: {codes.Unavailable, "the call ended before its handler began: it was not processed"},
	idempotency.TooManyKeys: {codes.ResourceExhausted,
		"the server remembers as many calls of this client as it may: it was not processed; try again later, with the same key"},
	idempotent.GivenUp: {codes.Unavailable, "it took too long, or the server could not make sure that it is the only one to process the call: " +
		"try again later, with the same key"},
	idempotent.NotRecorded: {codes.Unavailable, "the call was processed, and its reply was not recorded, so it was not sent: try again later, with the same " +
		"key; the retry gets the reply if it was recorded meanwhile, and is processed anew otherwise"},
}

// Refuse implements idempotent.Transport: it ends the call with the refusal of a result.
func (q *exchange) Refuse(result idempotency.Result, retryAfter time.Duration, err error) {
	r := refusals[result]
	if ended := q.ctx.Err(); ended != nil && result == idempotency.Canceled {
		r.code = status.FromContextError(ended).Code()
	}
	details := []protoadapt.MessageV1{
		&errdetails.ErrorInfo{Reason: strings.ToUpper(string(result)), Domain: errorDomain},
	}
	if key := (*idempotency.KeyError)(nil); errors.As(err, &key) {
		details = append(details, &errdetails.BadRequest{
			FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: key.From, Description: key.Reason}},
		})
	}
	if retryAfter > 0 && (r.code == codes.Aborted || r.code == codes.Unavailable || r.code == codes.ResourceExhausted) {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(retryAfter)})
		// For the client's retry policy (gRFC A6), which does not read RetryInfo.
		milliseconds := strconv.FormatInt(max(1, retryAfter.Milliseconds()), 10)
		_ = grpc.SetTrailer(q.ctx, metadata.Pairs("grpc-retry-pushback-ms", milliseconds))
	}
	s := status.New(r.code, "guardgrpc: "+r.message)
	if detailed, err := s.WithDetails(details...); err == nil {
		s = detailed
	}
	q.reply, q.err = nil, &refusalError{s, result == idempotent.GivenUp || result == idempotent.NotRecorded}
}

// A refusalError is the error of a refusal, which says to interceptors in front whether the
// handler ran (guard.Ran).
type refusalError struct {
	status *status.Status
	ran    bool
}

func (e *refusalError) Error() string              { return e.status.Err().Error() }
func (e *refusalError) GRPCStatus() *status.Status { return e.status }
func (e *refusalError) Ran() bool                  { return e.ran }

// ResultOf returns the Result for which an interceptor of this package has refused a call, for
// clients and for interceptors in front. It is empty for any other error. "given_up" means that
// the handler did not end in time, or lost its lease. "unrecorded" means that it has ended, and
// that its reply was not recorded (WithAnswerAfterRecord).
func ResultOf(err error) idempotency.Result {
	s, _ := status.FromError(err)
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetDomain() == errorDomain {
			return idempotency.Result(strings.ToLower(info.GetReason()))
		}
	}
	return ""
}
