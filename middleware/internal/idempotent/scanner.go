package idempotent

import (
	"encoding/binary"
	"errors"
)

// The bounds of the fields of an answer: its headers or its metadata. An answer beyond them is not
// recorded, and a record beyond them is not believed.
const (
	MaxFieldNames = 256
	MaxFieldLines = 1024
	MaxFieldBytes = 64 << 10
)

// AppendText appends a text to a record.
func AppendText[T string | []byte](b []byte, text T) []byte {
	b = binary.AppendUvarint(b, uint64(len(text)))
	return append(b, text...)
}

// AppendFields appends fields to a record: their number, and of each its name, the number of its
// values, and its values.
func AppendFields(b []byte, fields map[string][]string) []byte {
	b = binary.AppendUvarint(b, uint64(len(fields)))
	for name, values := range fields {
		b = AppendText(b, name)
		b = binary.AppendUvarint(b, uint64(len(values)))
		for _, v := range values {
			b = AppendText(b, v)
		}
	}
	return b
}

// Recordable reports whether fields are within what a record may hold.
func Recordable(fields map[string][]string, validValue func(name, value string) bool) bool {
	lines, bytes := 0, 0
	for name, values := range fields {
		lines += len(values)
		bytes += len(name)
		for _, v := range values {
			bytes += len(v)
			if !validValue(name, v) {
				return false
			}
		}
	}
	return len(fields) <= MaxFieldNames && lines <= MaxFieldLines && bytes <= MaxFieldBytes
}

// A Scanner reads the parts of a record, and none after an error.
type Scanner struct {
	rest []byte
	err  error
}

// NewScanner returns a Scanner of an answer.
func NewScanner(answer []byte) Scanner { return Scanner{rest: answer} }

// Err returns the first error.
func (s *Scanner) Err() error { return s.err }

// Fail notes an error, if it is the first.
func (s *Scanner) Fail(reason string) {
	if s.err == nil {
		s.err = errors.New(reason)
		s.rest = nil
	}
}

// End fails if something is left.
func (s *Scanner) End() {
	if s.err == nil && len(s.rest) > 0 {
		s.Fail("something follows its end")
	}
}

// Fields reads fields, whose names and values have to be valid.
func (s *Scanner) Fields(validName func(name string) bool, validValue func(name, value string) bool) map[string][]string {
	names := s.Number(MaxFieldNames)
	if names == 0 {
		return nil
	}
	fields := make(map[string][]string, names)
	lines, bytes := MaxFieldLines, MaxFieldBytes
	for range names {
		name := string(s.Text(bytes))
		bytes -= len(name)
		values := make([]string, s.Number(lines))
		lines -= len(values)
		for i := range values {
			values[i] = string(s.Text(bytes))
			bytes -= len(values[i])
			if !validValue(name, values[i]) {
				s.Fail("a header's value is none")
			}
		}
		if !validName(name) {
			s.Fail("a header's name is none")
		}
		if s.err != nil {
			return fields
		}
		fields[name] = values
	}
	return fields
}

func (s *Scanner) take(n int) []byte {
	if n > len(s.rest) {
		s.Fail("it ends too early")
		return nil
	}
	taken := s.rest[:n:n]
	s.rest = s.rest[n:]
	return taken
}

func (s *Scanner) byte() byte {
	if b := s.take(1); b != nil {
		return b[0]
	}
	return 0
}

// Number reads a number that is at most most.
func (s *Scanner) Number(most int) int {
	n, size := binary.Uvarint(s.rest)
	if size <= 0 {
		s.Fail("a number is none")
		return 0
	}
	if n > uint64(most) {
		s.Fail("a number is too large")
		return 0
	}
	s.rest = s.rest[size:]
	return int(n)
}

// Text reads a text of at most most bytes, which is a part of the record.
func (s *Scanner) Text(most int) []byte { return s.take(s.Number(most)) }

// Rest reads a text of any length.
func (s *Scanner) Rest() []byte { return s.Text(len(s.rest)) }
