package keys

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
)

type clientKey struct{}

// WithKey returns a context whose requests have the key.
func WithKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, clientKey{}, key)
}

// ForClient returns the key of a client's request as Header reads it: that of WithKey, or a random
// UUID.
func ForClient(ctx context.Context) (header string, err error) {
	key, chosen := ctx.Value(clientKey{}).(string)
	if !chosen {
		key = newUUID()
	}
	key, err = text(key)
	return quote(key), err
}

// newUUID returns a random UUID (RFC 9562, version 4).
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// quote returns a key as Header reads it: raw, or as a String of RFC 8941 if it has a space or a
// quote.
func quote(key string) string {
	if !strings.ContainsAny(key, `" `) {
		return key
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
}
