package guardhttp

import (
	"encoding/binary"
	"net/http"

	"github.com/seed-1795987d/onerun/middleware/internal/idempotent"
)

// An answer is a response that can be replayed.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// Size implements idempotent.Answer.
func (a *answer) Size() int { return len(a.body) + 64*len(a.header) }

// Append appends the binary form of an answer. It is a part of a record, whose form is in the
// package idempotent:
//
//	status    uvarint
//	headers   uvarint; each: name, number of values, values
//	body      text
func (a *answer) Append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(a.status))
	b = idempotent.AppendFields(b, a.header)
	return idempotent.AppendText(b, a.body)
}

// readAnswer reads the binary form of an answer, parts of which the answer goes on to use. An
// error is an *idempotency.RecordError.
func readAnswer(b []byte) (*answer, error) {
	s := idempotent.NewScanner(b)
	a := &answer{status: s.Number(999)}
	if a.status < http.StatusOK {
		s.Fail("its status is none")
	}
	a.header = s.Fields(validName, validField)
	a.body = s.Rest()
	s.End()
	if err := s.Err(); err != nil {
		return nil, idempotent.Unreadable(idempotent.Corrupt, err)
	}
	return a, nil
}

// validField is validValue for the value of any header.
func validField(_, value string) bool { return validValue(value) }
