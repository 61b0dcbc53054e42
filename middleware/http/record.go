package guardhttp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net/http"
)

// The binary form of a record, in which uvarint is that of encoding/binary and text is a length as
// a uvarint and as many bytes:
//
//	"or", version 1                 3 bytes
//	kind                            1 byte: 1 an answer, 2 a tombstone
//	fingerprint                     1 byte: 0 or 32; as many bytes
//	origin                          text
//	of an answer:
//	  status                        uvarint
//	  headers                       uvarint; each: name, number of values, values
//	  headers set after WriteHeader the same
//	  body                          text
//	CRC-32C of all before it        4 bytes, big-endian
const (
	magic         = "or"
	versionPlain  = 1
	versionSealed = 2 // see seal.go

	kindAnswer    = 1
	kindTombstone = 2
)

// What a record may hold. An answer beyond it is not recorded, and a record beyond it is not
// believed.
const (
	maxOrigin      = 256
	maxHeaderNames = 256
	maxHeaderLines = 1024
	maxHeaderBytes = 64 << 10
	checksumBytes  = 4
)

// A record is what a finished run leaves in its done marker.
type record struct {
	fingerprint []byte  // of the request, or empty
	origin      string  // what Observer.Origin said of the first run
	answer      *answer // nil in a tombstone
}

// An answer is a response that can be given again.
type answer struct {
	status int
	header http.Header
	late   http.Header // set between WriteHeader and the first byte
	body   []byte
}

// A RecordError is a record in the store that cannot be read: it is corrupt, of another version,
// somebody else's, or encrypted with a key that is not known here. The request that found it is
// told that its work was done and cannot be replayed.
type RecordError struct {
	Reason string
	Err    error // or nil
}

func (e *RecordError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("guardhttp: the record cannot be read: %s: %v", e.Reason, e.Err)
	}
	return "guardhttp: the record cannot be read: " + e.Reason
}

// Unwrap returns Err.
func (e *RecordError) Unwrap() error { return e.Err }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encode returns the record's binary form.
func (r *record) encode() []byte {
	size := 64 + len(r.origin)
	if r.answer != nil {
		size += len(r.answer.body) + 64*len(r.answer.header)
	}
	b := make([]byte, 0, size)
	b = append(b, magic...)
	b = append(b, versionPlain, r.kind(), byte(len(r.fingerprint)))
	b = append(b, r.fingerprint...)
	b = appendText(b, r.origin)
	if a := r.answer; a != nil {
		b = binary.AppendUvarint(b, uint64(a.status))
		b = appendHeader(appendHeader(b, a.header), a.late)
		b = binary.AppendUvarint(b, uint64(len(a.body)))
		b = append(b, a.body...)
	}
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func (r *record) kind() byte {
	if r.answer != nil {
		return kindAnswer
	}
	return kindTombstone
}

func appendHeader(b []byte, h http.Header) []byte {
	b = binary.AppendUvarint(b, uint64(len(h)))
	for name, values := range h {
		b = appendText(b, name)
		b = binary.AppendUvarint(b, uint64(len(values)))
		for _, v := range values {
			b = appendText(b, v)
		}
	}
	return b
}

func appendText[T string | []byte](b []byte, text T) []byte {
	b = binary.AppendUvarint(b, uint64(len(text)))
	return append(b, text...)
}

// decode reads the binary form of a record, parts of which the record goes on to use. What it
// allocates is bounded by the length of b and the bounds above. An error is a *RecordError.
func decode(b []byte) (*record, error) {
	if len(b) < len(magic)+1+checksumBytes || string(b[:len(magic)]) != magic {
		return nil, &RecordError{Reason: "it is none of ours"}
	}
	if v := b[len(magic)]; v != versionPlain {
		return nil, &RecordError{Reason: fmt.Sprintf("it has version %d, which is unknown here", v)}
	}
	end := len(b) - checksumBytes
	if crc32.Checksum(b[:end], castagnoli) != binary.BigEndian.Uint32(b[end:]) {
		return nil, &RecordError{Reason: "its checksum is wrong"}
	}
	s := scanner{rest: b[len(magic)+1 : end]}
	r := s.record()
	if s.err == nil && len(s.rest) > 0 {
		s.err = errors.New("something follows its end")
	}
	if s.err != nil {
		return nil, &RecordError{Reason: "it is corrupt", Err: s.err}
	}
	return r, nil
}

// A scanner reads the parts of a record, none after an error.
type scanner struct {
	rest []byte
	err  error
}

func (s *scanner) record() *record {
	r := &record{}
	kind := s.byte()
	switch n := s.byte(); n {
	case 0:
	case fingerprintSize:
		r.fingerprint = s.take(fingerprintSize)
	default:
		s.fail("its fingerprint has a wrong length")
	}
	r.origin = string(s.text(maxOrigin))
	switch kind {
	case kindTombstone:
	case kindAnswer:
		r.answer = s.answer()
	default:
		s.fail("its kind is unknown")
	}
	return r
}

func (s *scanner) answer() *answer {
	a := &answer{status: s.number(999)}
	if a.status < 200 {
		s.fail("its status is none")
	}
	a.header = s.header()
	a.late = s.header()
	a.body = s.text(len(s.rest))
	return a
}

func (s *scanner) header() http.Header {
	names := s.number(maxHeaderNames)
	if names == 0 {
		return nil
	}
	h := make(http.Header, names)
	lines, bytes := maxHeaderLines, maxHeaderBytes
	for range names {
		name := string(s.text(bytes))
		bytes -= len(name)
		values := make([]string, s.number(lines))
		lines -= len(values)
		for i := range values {
			values[i] = string(s.text(bytes))
			bytes -= len(values[i])
			if !validValue(values[i]) {
				s.fail("a header's value is none")
			}
		}
		if !validName(name) {
			s.fail("a header's name is none")
		}
		if s.err != nil {
			return h
		}
		h[name] = values
	}
	return h
}

func (s *scanner) fail(reason string) {
	if s.err == nil {
		s.err = errors.New(reason)
		s.rest = nil
	}
}

func (s *scanner) take(n int) []byte {
	if n > len(s.rest) {
		s.fail("it ends too early")
		return nil
	}
	taken := s.rest[:n:n]
	s.rest = s.rest[n:]
	return taken
}

func (s *scanner) byte() byte {
	if b := s.take(1); b != nil {
		return b[0]
	}
	return 0
}

// number reads a number that is at most most.
func (s *scanner) number(most int) int {
	n, size := binary.Uvarint(s.rest)
	if size <= 0 {
		s.fail("a number is none")
		return 0
	}
	if n > uint64(most) {
		s.fail("a number is too large")
		return 0
	}
	s.rest = s.rest[size:]
	return int(n)
}

func (s *scanner) text(most int) []byte { return s.take(s.number(most)) }
