package guardgrpc

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/seed-1795987d/onerun/middleware/internal/idempotent"
	"github.com/seed-1795987d/onerun/middleware/internal/keys"
)

// A KeyFunc finds the key of a call: what must not run twice. An error refuses the call:
// an *idempotency.KeyError with INVALID_ARGUMENT, as the client's mistake, any other with INTERNAL,
// as the server's. An empty key is a missing one, and so is an error for which
// errors.Is(err, idempotency.ErrNoKey) holds. With idempotency.ErrUnguarded, the call is passed on.
// It must not change the request. A KeyFunc is called concurrently.
type KeyFunc func(ctx context.Context, info *grpc.UnaryServerInfo, req any) (string, error)

const keyName = "idempotency-key"

// IdempotencyKey is the KeyFunc of the metadata "idempotency-key", which ClientKeys sends. It
// takes the same values as the HTTP header of that name: raw text, or the quoted string of RFC
// 8941. abc and "abc" are the same key. A key has 1 to 255 bytes of printable ASCII, and a raw one
// no spaces and no quotes. An empty key, another character or a second value is an
// *idempotency.KeyError.
func IdempotencyKey(ctx context.Context, _ *grpc.UnaryServerInfo, _ any) (string, error) {
	return place("metadata " + keyName).found(keys.Header(metadata.ValueFromIncomingContext(ctx, keyName)))
}

// A place is where a key should be.
type place string

// found returns a key that was found there, or the *idempotency.KeyError for an error of package
// keys.
func (p place) found(key string, err error) (string, error) {
	if err != nil {
		return "", idempotent.NoKey(string(p), err)
	}
	return key, nil
}

// FromMetadata returns a KeyFunc that takes the value of a metadata key as it is: one value of 1
// to 255 bytes of printable ASCII. For "idempotency-key" use IdempotencyKey, which also reads
// quoted keys. It panics if the name is none of metadata, or is that of binary metadata (-bin).
func FromMetadata(name string) KeyFunc {
	name = strings.ToLower(name)
	if !validName(name) || strings.HasSuffix(name, "-bin") {
		panic(fmt.Sprintf("guardgrpc: FromMetadata: %q must be the name of metadata that is text", name))
	}
	from := place("metadata " + name)
	return func(ctx context.Context, _ *grpc.UnaryServerInfo, _ any) (string, error) {
		return from.found(keys.Plain(metadata.ValueFromIncomingContext(ctx, name)))
	}
}

// FromContext returns a KeyFunc that takes a value out of the call's context, such as one that an
// authenticating interceptor in front has put there. It is a string, an integer, an array of bytes
// such as a UUID, or a type of these, also behind pointers. The underlying value counts, and not
// what the type's String method returns: a UserID(7) is "7". So values that differ never give one
// key, if all are of one type.
//
// A zero value, a nil pointer, an ID of zeros and "<nil>" count as missing, because a field that
// was never set has them. Values of other types refuse the call with INTERNAL: put their name or
// number into the context. It panics if key is nil.
func FromContext(key any) KeyFunc {
	if key == nil {
		panic("guardgrpc: FromContext: the key must not be nil")
	}
	return func(ctx context.Context, _ *grpc.UnaryServerInfo, _ any) (string, error) {
		return idempotent.GRPC.KeyFromContext(ctx, key)
	}
}

// Join returns a KeyFunc whose key combines the keys of all of its functions. None may be missing.
// It is a hash of the parts and their lengths, so that no two lists of parts share one. It panics
// if a function is nil.
func Join(first KeyFunc, more ...KeyFunc) KeyFunc {
	all := append([]KeyFunc{first}, more...)
	for i, f := range all {
		if f == nil {
			panic(fmt.Sprintf("guardgrpc: Join: function %d is nil", i+1))
		}
	}
	return func(ctx context.Context, info *grpc.UnaryServerInfo, req any) (string, error) {
		return idempotent.GRPC.JoinKeys(len(all), func(i int) (string, error) { return all[i](ctx, info, req) })
	}
}
