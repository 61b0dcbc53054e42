package guardgrpc

import (
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/seed-1795987d/onerun/middleware/internal/idempotent"
)

const typePrefix = "type.googleapis.com/"

// newAnswer returns the end of a call that can be given again: a message or an error, with
// metadata. It is nil if it cannot be recorded: it is larger than most bytes, or no protobuf
// message.
func newAnswer(message any, s *status.Status, header, trailer metadata.MD, most int) *idempotent.Answer {
	a := &idempotent.Answer{Status: int(s.Code()), Header: header, Trailer: trailer}
	var err error
	if s.Code() != codes.OK {
		a.Body, err = proto.Marshal(s.Proto())
	} else {
		m, ok := messageOf(message)
		if !ok {
			return nil
		}
		a.Type = typePrefix + string(m.ProtoReflect().Descriptor().FullName())
		a.Body, err = proto.Marshal(m)
	}
	if err != nil || len(a.Body) > most || !idempotent.Recordable(header, validValue) || !idempotent.Recordable(trailer, validValue) {
		return nil
	}
	return a
}

// messageOf returns a protobuf message, as gRPC's own codec does.
func messageOf(v any) (proto.Message, bool) {
	switch m := v.(type) {
	case proto.Message:
		return m, true
	case protoadapt.MessageV1:
		return protoadapt.MessageV2Of(m), true
	}
	return nil, false
}

// parse returns what a handler has returned, as it was recorded. failed is an
// *idempotency.RecordError.
func parse(a *idempotent.Answer) (message any, final, failed error) {
	for _, fields := range []map[string][]string{a.Header, a.Trailer} {
		valid := idempotent.Recordable(fields, validValue)
		for name := range fields {
			valid = valid && validName(name)
		}
		if !valid {
			return nil, nil, idempotent.Unreadable(idempotent.Corrupt, nil)
		}
	}
	switch {
	case (a.Status == 0) == (a.Type == ""):
		return nil, nil, idempotent.Unreadable("it must have either an error or a message", nil)
	case a.Status != 0:
		s := new(statuspb.Status)
		if err := proto.Unmarshal(a.Body, s); err != nil || codes.Code(s.GetCode()) != codes.Code(a.Status) {
			return nil, nil, idempotent.Unreadable(idempotent.Corrupt, err)
		}
		return nil, status.ErrorProto(s), nil
	}
	kind, err := protoregistry.GlobalTypes.FindMessageByURL(a.Type)
	if err != nil {
		return nil, nil, idempotent.Unreadable("this program does not have the type of its message, "+a.Type, err)
	}
	m := kind.New().Interface()
	if err := proto.Unmarshal(a.Body, m); err != nil {
		return nil, nil, idempotent.Unreadable("its message is no "+a.Type, err)
	}
	return m, nil, nil
}
