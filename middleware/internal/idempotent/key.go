package idempotent

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/seed-1795987d/onerun/middleware/idempotency"
	"github.com/seed-1795987d/onerun/middleware/internal/keys"
)

// MaxKey is the longest key in bytes, of those that are not read from a header or metadata.
const MaxKey = 4096

// MissingKey returns the error for a call that does not have its key where it should be.
func MissingKey(from string) error {
	return &idempotency.KeyError{From: from, Reason: "is missing", Missing: true}
}

// InvalidKey returns an *idempotency.KeyError, or nil if there is no reason.
func InvalidKey(from, reason string) error {
	if reason == "" {
		return nil
	}
	return &idempotency.KeyError{From: from, Reason: reason}
}

// FoundKey returns a key that was found in a call.
func FoundKey(key, from string) (string, error) {
	switch {
	case key == "":
		return "", MissingKey(from)
	case len(key) > MaxKey:
		return "", InvalidKey(from, fmt.Sprintf("is longer than %d bytes", MaxKey))
	}
	return key, nil
}

// OneKey returns the value of a header or of metadata that must occur in a call once.
func OneKey(values []string, from string) (string, error) {
	switch len(values) {
	case 0:
		return "", MissingKey(from)
	case 1:
		return values[0], nil
	default:
		return "", InvalidKey(from, fmt.Sprintf("occurs %d times", len(values)))
	}
}

// KeyFromContext returns the value of a context as a key.
func (a Adapter) KeyFromContext(ctx context.Context, key any) (string, error) {
	value, err := keys.Value(ctx, key)
	switch {
	case errors.Is(err, keys.ErrNoValue):
		return "", fmt.Errorf("%s: %w for %T: %w: code in front must put it into the context of the call (in HTTP, by r.WithContext); "+
			"values that a framework keeps itself, as gin's c.Set does, are not there", a.Package(), err, key, idempotency.ErrNoKey)
	case err != nil:
		return "", fmt.Errorf("%s: FromContext(%T): %w", a.Package(), key, err)
	}
	return value, nil
}

// JoinKeys returns a hash of n parts and their lengths, none of which may be missing.
func (a Adapter) JoinKeys(n int, part func(i int) (string, error)) (string, error) {
	parts := make([]string, n)
	for i := range parts {
		var err error
		if parts[i], err = part(i); err != nil {
			return "", err
		}
		if parts[i] == "" {
			return "", fmt.Errorf("%s: part %d of the key is empty: %w", a.Package(), i+1, idempotency.ErrNoKey)
		}
	}
	sum := keys.Hash(parts...)
	return hex.EncodeToString(sum[:]), nil
}
