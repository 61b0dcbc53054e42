package idempotent

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-1795987d/onerun/middleware/idempotency"
	"github.com/seed-1795987d/onerun/middleware/internal/keys"
)

// NoKey returns the *idempotency.KeyError for an error of package keys.
func NoKey(from string, err error) error {
	return &idempotency.KeyError{From: from, Reason: err.Error(), Missing: errors.Is(err, keys.ErrMissing)}
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
	return keys.Join(n, func(i int) (string, error) {
		key, err := part(i)
		if err == nil && key == "" {
			err = fmt.Errorf("%s: part %d of the key is empty: %w", a.Package(), i+1, idempotency.ErrNoKey)
		}
		return key, err
	})
}
