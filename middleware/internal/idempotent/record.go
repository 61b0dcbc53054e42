package idempotent

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// The binary form of a record, in which uvarint is that of encoding/binary and text is a length as
// a uvarint and as many bytes:
//
//	"or", version 1                 3 bytes
//	kind                            1 byte: 1 an answer of HTTP, 2 a tombstone, 3 a reply of gRPC
//	fingerprint                     1 byte: 0 or 32; as many bytes
//	origin                          text
//	the answer                      as the adapter encodes it
//	CRC-32C of all before it        4 bytes, big-endian
const (
	magic         = "or"
	versionPlain  = 1
	versionSealed = 2 // see seal.go

	kindAnswer    = 1
	kindTombstone = 2
	kindReply     = 3

	checksumBytes = 4
)

const (
	// FingerprintSize is the length of a fingerprint in bytes.
	FingerprintSize = sha256.Size
	// MaxOrigin is the longest origin in bytes.
	MaxOrigin = 256
)

// A Record is what a finished run leaves in its done marker.
type Record struct {
	Fingerprint []byte // of the call, or empty
	Origin      string
	Answer      Answer // nil in a tombstone
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Encode returns the record's binary form.
func (r *Record) Encode(a Adapter) []byte {
	size, kind := 64+len(r.Origin), byte(kindTombstone)
	if r.Answer != nil {
		size += r.Answer.Size()
		kind = a.kind()
	}
	b := make([]byte, 0, size)
	b = append(b, magic...)
	b = append(b, versionPlain, kind, byte(len(r.Fingerprint)))
	b = append(b, r.Fingerprint...)
	b = AppendText(b, r.Origin)
	if r.Answer != nil {
		b = r.Answer.Append(b)
	}
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// A Found is a record that was found in the store.
type Found struct {
	Fingerprint []byte
	Origin      string
	HasAnswer   bool
	Answer      []byte // for Transport.Read
}

// Decode reads the binary form of a record, parts of which the result goes on to use. What it
// allocates is bounded by the length of b and the bounds above. An error is an
// *idempotency.RecordError.
func Decode(b []byte, a Adapter) (*Found, error) {
	if len(b) < len(magic)+1+checksumBytes || string(b[:len(magic)]) != magic {
		return nil, Unreadable("it is none of ours", nil)
	}
	if v := b[len(magic)]; v != versionPlain {
		return nil, Unreadable(fmt.Sprintf("it has version %d, which is unknown here", v), nil)
	}
	end := len(b) - checksumBytes
	if crc32.Checksum(b[:end], castagnoli) != binary.BigEndian.Uint32(b[end:]) {
		return nil, Unreadable("its checksum is wrong", nil)
	}
	s := Scanner{rest: b[len(magic)+1 : end]}
	f := s.record(a)
	if !f.HasAnswer {
		s.End()
	}
	if s.err != nil {
		return nil, Unreadable(Corrupt, s.err)
	}
	return f, nil
}

// Unreadable returns the error for a record that cannot be read. err may be nil.
func Unreadable(reason string, err error) error {
	return &idempotency.RecordError{Reason: reason, Err: err}
}

// Corrupt is the reason for which a record cannot be read whose parts are wrong.
const Corrupt = "it is corrupt"

func (s *Scanner) record(a Adapter) *Found {
	f := &Found{}
	kind := s.byte()
	switch n := s.byte(); n {
	case 0:
	case FingerprintSize:
		f.Fingerprint = s.take(FingerprintSize)
	default:
		s.Fail("its fingerprint has a wrong length")
	}
	f.Origin = string(s.Text(MaxOrigin))
	switch kind {
	case kindTombstone:
	case a.kind():
		f.HasAnswer, f.Answer = true, s.rest
	default:
		s.Fail("its kind is unknown")
	}
	return f
}
