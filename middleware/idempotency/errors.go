package idempotency

import "errors"

// ErrNoKey says that a call has no key. Such a call is passed on or refused, see the WithMethods
// of the adapter and WithOptionalKey.
var ErrNoKey = errors.New("there is no key")

// ErrUnguarded is what a KeyFunc returns for a call that needs no key, such as one of an internal
// client. The call runs as if there were no middleware, and the store is not asked. Its result is
// Untouched. A scope, or a part of Join, that returns it leaves the call out, too.
var ErrUnguarded = errors.New("idempotency: the call is not guarded")

// A KeyError is a key that a client has left out, or that cannot be used. It contains nothing that
// the client has not sent.
type KeyError struct {
	From    string // where the key should be: "header Idempotency-Key"
	Reason  string // "is missing"
	Missing bool   // errors.Is(err, ErrNoKey)
}

func (e *KeyError) Error() string { return "idempotency: " + e.From + " " + e.Reason }

// Is reports whether target is ErrNoKey and the key is missing.
func (e *KeyError) Is(target error) bool { return target == ErrNoKey && e.Missing }

// Ran returns false: the handler did not run.
func (e *KeyError) Ran() bool { return false }

// A RecordError is a record in the store that cannot be read. It is corrupt, of another version,
// of another program, or encrypted with an unknown key. In gRPC, it can also be of a message type
// that this program does not have. The call that found it is refused with 409, ALREADY_EXISTS: its
// work was done, and the answer cannot be replayed.
type RecordError struct {
	Reason string
	Err    error // or nil
}

func (e *RecordError) Error() string {
	text := "idempotency: the record cannot be read: " + e.Reason
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns Err.
func (e *RecordError) Unwrap() error { return e.Err }

// Ran returns false: the handler did not run for the call that found the record.
func (e *RecordError) Ran() bool { return false }
