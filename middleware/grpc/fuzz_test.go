package guardgrpc

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// Whatever stands in the store: reading it does not panic, and what is accepted is a reply.
func FuzzReply(f *testing.F) {
	header := metadata.MD{"a": {"1", "2"}, "b-bin": {"\x00"}}
	for _, r := range []*reply{
		newReply(wrapperspb.String("a"), status.New(codes.OK, ""), header, nil, 100),
		newReply(nil, status.New(codes.NotFound, "no"), nil, header, 100),
	} {
		f.Add(r.Append(nil))
	}
	f.Add([]byte{})
	f.Add([]byte{0, 1, 'x', 0, 0, 0})
	f.Add([]byte{0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		r, err := readReply(b)
		if !bytes.Equal(before, b) {
			t.Fatal("what was read was changed")
		}
		if err != nil {
			if unreadable := (*idempotency.RecordError)(nil); !errors.As(err, &unreadable) {
				t.Fatal(err)
			}
			return
		}
		for _, md := range []metadata.MD{r.header, r.trailer} {
			for name, values := range md {
				for _, v := range values {
					if !validName(name) || !validValue(name, v) {
						t.Fatalf("%q: %q", name, v)
					}
				}
			}
		}
		again, err := readReply(r.Append(nil))
		if err != nil || !same(r, again) {
			t.Fatalf("%v %v %v", r, again, err)
		}
		message, final, failed := r.parse()
		if (failed == nil) != (final != nil) || failed == nil && (message == nil) != (final.Code() != codes.OK) {
			t.Fatal(message, final, failed)
		}
	})
}

// same compares replies, in which nothing and an empty list are the same.
func same(a, b *reply) bool {
	equal := func(a, b metadata.MD) bool { return len(a) == 0 && len(b) == 0 || reflect.DeepEqual(a, b) }
	return bytes.Equal(a.status, b.status) && a.url == b.url && bytes.Equal(a.message, b.message) && equal(a.header, b.header) &&
		equal(a.trailer, b.trailer)
}
