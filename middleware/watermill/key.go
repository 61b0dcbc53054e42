package guardwatermill

import (
	"errors"
	"fmt"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/seed-1795987d/onerun/middleware/internal/keys"
)

// A KeyFunc returns the key of a message: what must not be handled twice at a time, or with
// WithOnce, twice at all. The message's context has the values of message.HandlerNameFromCtx and
// its like. With an error, the handler does not run, and the message comes again. With
// ErrUnguarded, the handler runs without a lease. An empty key is a *KeyError. A KeyFunc is called
// concurrently.
type KeyFunc func(msg *message.Message) (string, error)

// ErrUnguarded is what a KeyFunc returns for a message that needs no key: it is handled without a
// lease.
var ErrUnguarded = errors.New("guardwatermill: the message is not guarded")

// A KeyError is a message that should have a key, and has none. The message is not acknowledged: a
// middleware.PoisonQueue in front of New takes it, or else it comes again after WithDelay.
type KeyError struct {
	Handler string // the handler's name in the router
	From    string // where the key should be: "metadata event_id"
	Reason  string // "is missing"
}

func (e *KeyError) Error() string {
	return fmt.Sprintf("guardwatermill: message of handler %q: %s %s", e.Handler, e.From, e.Reason)
}

// FromMetadata returns a KeyFunc that takes a value of the metadata, such as the ID that the
// producer has given an event. It panics without a name.
func FromMetadata(name string) KeyFunc {
	keys.MustName("guardwatermill: FromMetadata", name)
	from := "metadata " + name
	return func(msg *message.Message) (string, error) {
		key, ok := msg.Metadata[name]
		if !ok {
			return "", keyError(msg, from, "is missing")
		}
		return found(msg, key, from)
	}
}

// FromUUID returns a KeyFunc that takes the UUID of the message. It finds deliveries of one
// message. A producer that sends an event again must give it the same UUID. watermill.NewUUID does
// not.
// Some brokers do not keep it: see the documentation of yours.
func FromUUID() KeyFunc {
	return func(msg *message.Message) (string, error) { return found(msg, msg.UUID, "UUID") }
}

// FromPayload returns a KeyFunc that takes the bytes of the payload. Payloads that say the same in
// other bytes, such as JSON with its fields in another order, have different keys. An empty payload
// is a key as any.
func FromPayload() KeyFunc {
	return func(msg *message.Message) (string, error) { return "payload:" + string(msg.Payload), nil }
}

// FromJSON returns a KeyFunc that takes a field of the JSON object in the payload, or, with more
// names, of the objects inside of it. The value must be a string or an integer. A name that occurs
// twice in an object is refused, even in other letters (id and ID): decoders differ in which of
// them they take. So is a value or a name that is not UTF-8, or has half of a surrogate pair:
// several would be one key. It panics without a name.
func FromJSON(field string, inside ...string) KeyFunc {
	names := append([]string{field}, inside...)
	keys.MustName("guardwatermill: FromJSON", names...)
	from := "JSON field " + strings.Join(names, ".") + " of the payload"
	return func(msg *message.Message) (string, error) {
		key, err := keys.JSON(msg.Payload, names)
		if err != nil {
			return "", keyError(msg, from, err.Error())
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
			panic(fmt.Sprintf("guardwatermill: Join: function %d is nil", i+1))
		}
	}
	return func(msg *message.Message) (string, error) {
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
// *KeyError (ErrUnguarded). It is for a middleware of a whole router of which only some messages
// have the key. A message whose field is misspelt is handled without a lease, too. It panics if the
// function is nil.
func Optional(key KeyFunc) KeyFunc {
	if key == nil {
		panic("guardwatermill: Optional: the function must not be nil")
	}
	return func(msg *message.Message) (string, error) {
		k, err := key(msg)
		var missing *KeyError
		if err == nil && k == "" || errors.As(err, &missing) {
			return "", ErrUnguarded
		}
		return k, err
	}
}

// found returns a key that was found at a place of the message.
func found(msg *message.Message, key, from string) (string, error) {
	if key == "" {
		return "", keyError(msg, from, "is empty")
	}
	return key, nil
}

func keyError(msg *message.Message, from, reason string) error {
	return &KeyError{Handler: message.HandlerNameFromCtx(msg.Context()), From: from, Reason: reason}
}
