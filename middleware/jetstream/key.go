package guardjetstream

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-1795987d/onerun/middleware/internal/keys"
)

// A KeyFunc returns the key of a message: what must not run twice at a time, or twice in the window
// of WithOnce. An error fails the message: it comes back as WithRetryDelay says, so that nothing is
// lost, unless the error is ErrTerminate. With ErrUnguarded, the handler runs without a lease. An
// empty key is a *KeyError. A KeyFunc is called concurrently.
type KeyFunc func(msg jetstream.Msg) (string, error)

// ErrUnguarded is what a KeyFunc returns for a message that needs no key: it is handled without a
// lease.
var ErrUnguarded = errors.New("guardjetstream: the message is not guarded")

// A KeyError is a message that should have a key, and has none.
type KeyError struct {
	Subject string // the message's
	From    string // where the key should be: "header Order-Id"
	Reason  string // "is missing"
}

func (e *KeyError) Error() string {
	return fmt.Sprintf("guardjetstream: message on %q: %s %s", e.Subject, e.From, e.Reason)
}

// FromMessage returns the KeyFunc that New uses if it is given none. Its key identifies the
// message. That is the header Nats-Msg-Id, by which the stream recognizes what a publisher sends
// again. If there is none, it is the sequence number in the stream and the time of storing. Both
// are the same in each delivery. The time is there because a stream that is deleted and made
// again counts from 1: without it, a new message would be taken for an old one. A message that is
// published again without the header is a new one.
func FromMessage() KeyFunc {
	return func(msg jetstream.Msg) (string, error) {
		if id := msg.Headers().Get(jetstream.MsgIDHeader); id != "" {
			return "id " + id, nil
		}
		meta, err := msg.Metadata()
		if err != nil {
			return "", err
		}
		return "sequence " + strconv.FormatUint(meta.Sequence.Stream, 10) + " of " + strconv.FormatInt(meta.Timestamp.UnixNano(), 10), nil
	}
}

// FromHeader returns a KeyFunc that takes a header of the message, such as the ID that the
// publisher has given an event. As NATS does, it distinguishes order-id from Order-Id. It panics
// without a name.
func FromHeader(name string) KeyFunc {
	keys.MustName("guardjetstream: FromHeader", name)
	from := "header " + name
	return func(msg jetstream.Msg) (string, error) {
		values := msg.Headers()[name]
		switch len(values) {
		case 0:
			return "", &KeyError{Subject: msg.Subject(), From: from, Reason: "is missing"}
		case 1:
			return found(msg, values[0], from)
		}
		return "", &KeyError{Subject: msg.Subject(), From: from, Reason: "is there more than once"}
	}
}

// FromPayload returns a KeyFunc that takes the bytes of the data. Data that say the same in other
// bytes, such as JSON with its fields in another order, have different keys. Empty data are a key
// as any.
func FromPayload() KeyFunc {
	return func(msg jetstream.Msg) (string, error) { return "payload:" + string(msg.Data()), nil }
}

// FromJSON returns a KeyFunc that takes a field of the JSON object in the data, or, with more
// names, of the objects inside of it. The value must be a string or an integer. A name that occurs
// twice in an object is refused, even in other letters (id and ID): decoders differ in which of
// them they take. So is a value or a name that is not UTF-8, or has half of a surrogate pair:
// several would be one key. It panics without a name.
func FromJSON(field string, inside ...string) KeyFunc {
	names := append([]string{field}, inside...)
	keys.MustName("guardjetstream: FromJSON", names...)
	from := "JSON field " + strings.Join(names, ".") + " of the data"
	return func(msg jetstream.Msg) (string, error) {
		key, err := keys.JSON(msg.Data(), names)
		if err != nil {
			return "", &KeyError{Subject: msg.Subject(), From: from, Reason: err.Error()}
		}
		return found(msg, key, from)
	}
}

// Join returns a KeyFunc whose key combines the keys of all of its functions. None may be missing.
// It is a hash of the parts and their lengths, so that no two lists of parts share one. It panics
// if a function is nil.
func Join(first KeyFunc, more ...KeyFunc) KeyFunc {
	all := append([]KeyFunc{first}, more...)
	for i, f := range all {
		if f == nil {
			panic(fmt.Sprintf("guardjetstream: Join: function %d is nil", i+1))
		}
	}
	return func(msg jetstream.Msg) (string, error) {
		return keys.Join(len(all), func(i int) (string, error) {
			part, err := all[i](msg)
			if err != nil {
				return "", err
			}
			return found(msg, part, fmt.Sprintf("part %d of the key", i+1))
		})
	}
}

// Optional returns a KeyFunc that does not guard messages for which the function returns a
// *KeyError (ErrUnguarded). It is for a consumer of which only some messages have the key. A
// message whose field is misspelt is handled without a lease, too. It panics if the function is
// nil.
func Optional(key KeyFunc) KeyFunc {
	if key == nil {
		panic("guardjetstream: Optional: the function must not be nil")
	}
	return func(msg jetstream.Msg) (string, error) {
		k, err := key(msg)
		var missing *KeyError
		if err == nil && k == "" || errors.As(err, &missing) {
			return "", ErrUnguarded
		}
		return k, err
	}
}

// found returns a key that was found at a place of the message.
func found(msg jetstream.Msg, key, from string) (string, error) {
	if key == "" {
		return "", &KeyError{Subject: msg.Subject(), From: from, Reason: "is empty"}
	}
	return key, nil
}
