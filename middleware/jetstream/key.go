package guardjetstream

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-1795987d/onerun/middleware/internal/keys"
)

// A KeyFunc returns the key of a message: what must not run twice at a time, or twice in the window
// of WithOnce. An error fails the message: it comes back as WithRetryDelay says, so that nothing is
// lost, unless the error is ErrTerminate. An empty key is a *KeyError. A KeyFunc is called
// concurrently.
type KeyFunc func(msg jetstream.Msg) (string, error)

// A KeyError is a message that should have a key, and has none.
type KeyError struct {
	Subject string // the message's
	Reason  string
}

func (e *KeyError) Error() string {
	return fmt.Sprintf("guardjetstream: message on %q: %s", e.Subject, e.Reason)
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

// FromJSON returns a KeyFunc that takes a field of a JSON object in the data of the message:
// FromJSON("order", "customer") takes the customer of the order. It has to be a string or an
// integer. It panics without a name.
func FromJSON(field string, more ...string) KeyFunc {
	path := append([]string{field}, more...)
	keys.MustName("guardjetstream: FromJSON", path...)
	from := fmt.Sprintf("field %q ", strings.Join(path, "."))
	return func(msg jetstream.Msg) (string, error) {
		key, err := keys.JSON(msg.Data(), path)
		if err != nil {
			return "", &KeyError{Subject: msg.Subject(), Reason: from + err.Error()}
		}
		return key, nil
	}
}
