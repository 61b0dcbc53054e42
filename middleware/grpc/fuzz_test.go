package guardgrpc

import (
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/seed-1795987d/onerun/middleware/idempotency"
	"github.com/seed-1795987d/onerun/middleware/internal/idempotent"
)

// Whatever stands in the store: reading it does not panic, and what is accepted is the end of a
// call.
func FuzzReply(f *testing.F) {
	header := metadata.MD{"a": {"1", "2"}, "b-bin": {"\x00"}}
	for _, a := range []*idempotent.Answer{
		newAnswer(wrapperspb.String("a"), status.New(codes.OK, ""), header, nil, 100),
		newAnswer(nil, status.New(codes.NotFound, "no"), nil, header, 100),
		newAnswer(nil, status.New(codes.Code(1<<32-1), "no"), nil, nil, 100),
	} {
		if _, _, err := parse(a); err != nil {
			f.Fatal(err)
		}
		f.Add(a.Status, a.Type, "a", "1", a.Body)
	}
	f.Add(0, "", "b-bin", "\x00", []byte{})
	f.Add(5, "x", "B", "\x00", []byte{0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, code int, kind, name, value string, body []byte) {
		a := &idempotent.Answer{Status: code, Type: kind, Header: metadata.MD{name: {value}}, Body: body}
		message, final, failed := parse(a)
		if unreadable := (*idempotency.RecordError)(nil); failed != nil && !errors.As(failed, &unreadable) {
			t.Fatal(failed)
		}
		if failed != nil {
			return
		}
		if !validName(name) || !validValue(name, value) {
			t.Fatalf("%q: %q", name, value)
		}
		if (message == nil) != (final != nil) || int(statusOf(final).Code()) != code {
			t.Fatal(message, final)
		}
	})
}
