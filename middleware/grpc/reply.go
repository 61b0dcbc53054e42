package guardgrpc

import (
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/seed-1795987d/onerun/middleware/internal/idempotent"
)

// A reply is the end of a call that can be given again: a message or an error, with metadata.
type reply struct {
	status  []byte // a google.rpc.Status; empty if the code is OK
	url     string // the type of the message, as in google.protobuf.Any; empty if there is none
	message []byte
	header  metadata.MD
	trailer metadata.MD
}

const typePrefix = "type.googleapis.com/"

// newReply returns the reply of a handler, or nil if it cannot be recorded: it is larger than most
// bytes, or no protobuf message.
func newReply(message any, s *status.Status, header, trailer metadata.MD, most int) *reply {
	r := &reply{header: header, trailer: trailer}
	var err error
	if s.Code() != 0 {
		r.status, err = proto.Marshal(s.Proto())
	} else {
		m, ok := messageOf(message)
		if !ok {
			return nil
		}
		r.url = typePrefix + string(m.ProtoReflect().Descriptor().FullName())
		r.message, err = proto.Marshal(m)
	}
	if err != nil || len(r.status)+len(r.message) > most ||
		!idempotent.Recordable(header, validValue) || !idempotent.Recordable(trailer, validValue) {
		return nil
	}
	return r
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

// Size implements idempotent.Answer.
func (r *reply) Size() int {
	return len(r.status) + len(r.url) + len(r.message) + 64*(len(r.header)+len(r.trailer))
}

// Append appends the binary form of a reply. It is a part of a record, whose form is in the
// package idempotent:
//
//	google.rpc.Status       text, empty if the code is OK
//	type URL of the message text, empty if there is none
//	message                 text
//	header, trailer         the number of names; each: name, number of values, values
func (r *reply) Append(b []byte) []byte {
	b = idempotent.AppendText(idempotent.AppendText(b, r.status), r.url)
	b = idempotent.AppendText(b, r.message)
	return idempotent.AppendFields(idempotent.AppendFields(b, r.header), r.trailer)
}

// readReply reads the binary form of a reply, parts of which the reply goes on to use. An error is
// an *idempotency.RecordError.
func readReply(b []byte) (*reply, error) {
	s := idempotent.NewScanner(b)
	r := &reply{status: s.Rest(), url: string(s.Rest()), message: s.Rest()}
	r.header = s.Fields(validName, validValue)
	r.trailer = s.Fields(validName, validValue)
	if (len(r.status) == 0) == (r.url == "") {
		s.Fail("it must have either an error or a message")
	}
	s.End()
	if err := s.Err(); err != nil {
		return nil, idempotent.Unreadable(idempotent.Corrupt, err)
	}
	return r, nil
}

// parse returns the message, or the error of the call. failed is an *idempotency.RecordError.
func (r *reply) parse() (message proto.Message, final *status.Status, failed error) {
	if len(r.status) > 0 {
		s := new(statuspb.Status)
		if err := proto.Unmarshal(r.status, s); err != nil {
			return nil, nil, idempotent.Unreadable(idempotent.Corrupt, err)
		}
		if s.GetCode() == 0 {
			return nil, nil, idempotent.Unreadable(idempotent.Corrupt, nil)
		}
		return nil, status.FromProto(s), nil
	}
	kind, err := protoregistry.GlobalTypes.FindMessageByURL(r.url)
	if err != nil {
		return nil, nil, idempotent.Unreadable("this program does not have the type of its message, "+r.url, err)
	}
	message = kind.New().Interface()
	if err := proto.Unmarshal(r.message, message); err != nil {
		return nil, nil, idempotent.Unreadable("its message is no "+r.url, err)
	}
	return message, status.New(0, ""), nil
}
