package idempotent

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/seed-1795987d/onerun/middleware/idempotency"
	"github.com/seed-1795987d/onerun/middleware/internal/keys"
)

// An Adapter is a package that adapts a transport. The zero Adapter is none.
type Adapter uint8

// The adapters.
const (
	HTTP Adapter = iota + 1
	GRPC
)

// String returns the name in reports, which is also the default name of the work.
func (a Adapter) String() string {
	if a == GRPC {
		return "grpc"
	}
	return "http"
}

// Package returns the name of the adapter's package, with which its errors begin.
func (a Adapter) Package() string { return "guard" + a.String() }

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
	return keys.Join(n, func(i int) (string, error) {
		key, err := part(i)
		if err == nil && key == "" {
			err = fmt.Errorf("%s: part %d of the key is empty: %w", a.Package(), i+1, idempotency.ErrNoKey)
		}
		return key, err
	})
}

// OfKey returns the result of a call whose KeyFunc has returned key and err: it is empty if there
// is a key.
func (s *Settings) OfKey(key string, err error, required bool) (idempotency.Result, error) {
	invalid := (*idempotency.KeyError)(nil)
	switch {
	case errors.Is(err, idempotency.ErrUnguarded):
		return idempotency.Untouched, nil
	case !errors.Is(err, idempotency.ErrNoKey) && (err != nil || key != ""):
	case required:
		return idempotency.KeyMissing, err
	default:
		return idempotency.Untouched, nil
	}
	switch {
	case err == nil:
		return "", nil
	case errors.As(err, &invalid):
		return idempotency.KeyInvalid, err
	default:
		return idempotency.Refused, err
	}
}

// OfScope returns the result of a call whose scope and err WithScope has returned: it is empty if
// there is a scope.
func (s *Settings) OfScope(scope string, err error) (idempotency.Result, error) {
	switch {
	case errors.Is(err, idempotency.ErrUnguarded):
		return idempotency.Untouched, nil
	case err != nil:
		return idempotency.Refused, fmt.Errorf("%s: the scope: %w", s.Adapter.Package(), err)
	case scope == "":
		return idempotency.Refused, errors.New(s.Adapter.Package() + ": the scope is empty")
	}
	return "", nil
}

// Stored returns the key under which the store knows a call: a hash, so that the store does not
// show what clients send. A key belongs to its scope, and to the group or else to the place, which
// says what is called.
func (s *Settings) Stored(scope, key string, place ...string) string {
	kind := "once"
	if s.Mode == idempotency.Exclusive {
		kind = "exclusive" // has no records, and must not meet any
	}
	parts := make([]string, 0, 8) // on the stack
	if s.Group != "" {
		parts = append(parts, kind, scope, "group", s.Group, key)
	} else {
		parts = append(append(append(parts, kind, scope), place...), key)
	}
	sum := keys.Hash(parts...)
	return s.Adapter.String() + ":" + base64.RawURLEncoding.EncodeToString(sum[:])
}
