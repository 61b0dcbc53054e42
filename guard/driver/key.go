package driver

import (
	"fmt"
	"strings"
)

// MaxKey is the longest key in bytes.
const MaxKey = 1024

// A KeyError is a key that cannot be used. Nothing was done.
type KeyError struct {
	// Key is the key. It is cut short if it is too long.
	Key    string
	Reason string
}

func (e *KeyError) Error() string { return fmt.Sprintf("guard: key %q %s", e.Key, e.Reason) }

// Ran returns false: the function did not run.
func (e *KeyError) Ran() bool { return false }

// CheckKey returns a *KeyError for a key that is empty, is longer than MaxKey, or contains a NUL
// byte or a brace. Braces choose the slot of a Redis Cluster, so a key with braces would decide
// where it is stored. For keys from outside, use a hash of the key instead.
//
// A Guard checks every key, with its namespace, unless Description.CheckKey replaces
// these rules.
func CheckKey(key string) error {
	if err := CheckKeyBytes(key); err != nil {
		return err
	}
	if strings.ContainsAny(key, "{}") {
		return &KeyError{Key: key, Reason: "has a brace, which would choose its slot in a Redis Cluster"}
	}
	return nil
}

// namespaceEnd stands between a namespace and a key, as in billing::report.
const namespaceEnd = "::"

// JoinNamespace returns the key by which the store knows a key of a namespace, or the key itself if
// the namespace is empty.
func JoinNamespace(namespace, key string) string {
	if namespace == "" || key == "" {
		return key
	}
	return namespace + namespaceEnd + key
}

// SplitNamespace is the reverse of JoinNamespace, for a namespace without a colon. The namespace is
// empty if the key has none.
func SplitNamespace(stored string) (namespace, key string) {
	if i := strings.IndexByte(stored, ':'); i > 0 && strings.HasPrefix(stored[i:], namespaceEnd) {
		return stored[:i], stored[i+len(namespaceEnd):]
	}
	return "", stored
}

// CheckKeyBytes is CheckKey without the rule about braces, for backends to which braces mean
// nothing.
func CheckKeyBytes(key string) error {
	switch {
	case key == "":
		return &KeyError{Key: key, Reason: "is empty"}
	case len(key) > MaxKey:
		return &KeyError{Key: key[:32] + "…", Reason: fmt.Sprintf("is longer than %d bytes", MaxKey)}
	case strings.IndexByte(key, 0) >= 0:
		return &KeyError{Key: key, Reason: "has a NUL byte"}
	}
	return nil
}
