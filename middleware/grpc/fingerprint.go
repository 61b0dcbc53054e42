package guardgrpc

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/seed-1795987d/onerun/middleware/internal/keys"
)

// A fingerprint returns what of a request must be the same in a retry, see WithFingerprint.
type fingerprint func(ctx context.Context, info *grpc.UnaryServerInfo, req any) ([]byte, error)

// errNoMessage is the server's mistake, and no client's.
var errNoMessage = errors.New("the request is no proto.Message: WithFingerprint says what to compare")

// of hashes what makes a request the same as another: by default the type of the message and its
// deterministic bytes.
func (f fingerprint) of(ctx context.Context, info *grpc.UnaryServerInfo, req any) ([]byte, error) {
	if f != nil {
		own, err := f(ctx, info, req)
		sum := sha256.Sum256(own)
		return sum[:], err
	}
	m, ok := messageOf(req)
	if !ok {
		return nil, fmt.Errorf("%w: it is a %T", errNoMessage, req)
	}
	b, err := proto.MarshalOptions{Deterministic: true, AllowPartial: true}.Marshal(m)
	if err != nil {
		return nil, err
	}
	sum := keys.Hash(string(m.ProtoReflect().Descriptor().FullName()), string(b))
	return sum[:], nil
}
