package guardwatermill

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"
)

// A record is what the done marker keeps of a run: recordBegin, the number of messages, and of each
// of them the UUID, the number of metadata, each name and value in the order of the names, and the
// payload. Numbers are uvarints of encoding/binary, and a text has its length before it.
const recordBegin = "onerun watermill 1\n"

// encode returns the record of messages, or why they cannot be kept.
func encode(msgs []*message.Message, most int) ([]byte, error) {
	b := binary.AppendUvarint([]byte(recordBegin), uint64(len(msgs)))
	for i, m := range msgs {
		if m == nil {
			return nil, fmt.Errorf("guardwatermill: produced message %d is nil", i+1)
		}
		b = appendText(b, m.UUID)
		b = binary.AppendUvarint(b, uint64(len(m.Metadata)))
		for _, name := range slices.Sorted(maps.Keys(m.Metadata)) {
			b = appendText(appendText(b, name), m.Metadata[name])
		}
		if b = appendText(b, string(m.Payload)); len(b) > most {
			return nil, fmt.Errorf("guardwatermill: the produced messages need more than the %d bytes of WithMaxRecord, so there is no marker", most)
		}
	}
	return b, nil
}

func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// errRecord is the error for a record that cannot be read.
var errRecord = errors.New("guardwatermill: the record of the first run cannot be read: it is of another version, or of another program")

// decode returns the messages of a record.
func decode(record []byte) ([]*message.Message, error) {
	r := &reader{rest: record}
	if r.take(uint64(len(recordBegin))) != recordBegin {
		return nil, errRecord
	}
	var msgs []*message.Message
	for n := r.number(); n > 0 && !r.failed; n-- {
		m := message.NewMessage(r.text(), nil)
		for names := r.number(); names > 0 && !r.failed; names-- {
			name := r.text()
			m.Metadata[name] = r.text()
		}
		m.Payload = message.Payload(r.text())
		msgs = append(msgs, m)
	}
	if r.failed || len(r.rest) > 0 {
		return nil, errRecord
	}
	return msgs, nil
}

// A reader reads a record. After it has failed, it returns nothing.
type reader struct {
	rest   []byte
	failed bool
}

func (r *reader) number() uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 {
		r.failed = true
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *reader) text() string { return r.take(r.number()) }

func (r *reader) take(n uint64) string {
	if r.failed || n > uint64(len(r.rest)) {
		r.failed = true
		return ""
	}
	text := string(r.rest[:n])
	r.rest = r.rest[n:]
	return text
}
