package guard

import "strings"

// MaxKey is the longest key in bytes.
const MaxKey = 1024

// CheckKey returns a *KeyError for a key that is empty, longer than MaxKey, or has a NUL byte or a
// brace in it: braces choose the slot of a Redis Cluster, so a key that carries one would steer where
// it is stored. Put a hash of the key in its place if it comes from outside.
//
// A Guard asks it for every key, with its namespace, unless its Locker has rules of its own (KeyChecker).
func CheckKey(key string) error {
	if err := CheckKeyBytes(key); err != nil {
		return err
	}
	if strings.ContainsAny(key, "{}") {
		return &KeyError{Key: key, Reason: "has a brace, which would choose its slot in a Redis Cluster"}
	}
	return nil
}

// CheckKeyBytes is CheckKey without the rule on braces, for stores in which they mean nothing.
func CheckKeyBytes(key string) error {
	switch {
	case key == "":
		return &KeyError{Key: key, Reason: "is empty"}
	case len(key) > MaxKey:
		return &KeyError{Key: key[:32] + "…", Reason: "is longer than 1024 bytes"}
	case strings.IndexByte(key, 0) >= 0:
		return &KeyError{Key: key, Reason: "has a NUL byte"}
	}
	return nil
}
