package idempotent

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"maps"
	"net/textproto"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// A Record is what a finished run leaves in its done marker:
//
//	length of the head         uvarint of encoding/binary
//	head                       the Record as JSON
//	body of the answer         the rest but for four bytes
//	CRC-32C of all before it   4 bytes, big-endian
type Record struct {
	Version     int     `json:"onerun"`
	Key         string  `json:"key,omitempty"` // of the encryption, see sealer
	Adapter     string  `json:"adapter,omitempty"`
	Fingerprint []byte  `json:"fingerprint,omitempty"` // of the call, or empty
	Answer      *Answer `json:"answer,omitempty"`      // nil in a tombstone
}

// An Answer is what can be given again.
type Answer struct {
	Status  int                 `json:"status"`         // of HTTP, or the code of gRPC
	Type    string              `json:"type,omitempty"` // of the message of gRPC
	Header  map[string][]string `json:"header,omitempty"`
	Trailer map[string][]string `json:"trailer,omitempty"`
	Body    []byte              `json:"-"` // in gRPC, the message or the google.rpc.Status
}

// Keep returns what to keep of a run. final reports whether the answer is final by the policy. It
// is not called if the handler has chosen what to keep. ctx is the context of the call.
func (c *Call) Keep(ctx context.Context, e Ending, final func() bool) idempotency.Keep {
	s := c.Core.Settings
	switch {
	case s.Mode == idempotency.Exclusive:
		return idempotency.KeepNothing
	case (s.ClientCancel || s.Shadow) && (e.Gone || ctx.Err() != nil):
		return idempotency.KeepNothing
	case s.Shadow && e.Undecided:
		return idempotency.KeepNothing // shadow mode must not prevent the other answer
	case e.Unsure:
		return idempotency.KeepTombstone // whatever the policy says
	}
	keep, chosen := c.Run.Chosen()
	if !chosen {
		keep = idempotency.KeepAnswer
		if !final() {
			return idempotency.KeepNothing
		}
	}
	switch {
	case keep != idempotency.KeepAnswer:
		return keep
	case s.Mode == idempotency.Reject:
		return idempotency.KeepTombstone
	case !e.Replayable && s.Rerun:
		return idempotency.KeepNothing
	case !e.Replayable:
		return idempotency.KeepTombstone
	}
	return idempotency.KeepAnswer
}

// record returns what to store for the run.
func (c *Call) record() []byte {
	var answer *Answer
	if c.left.Keep == idempotency.KeepAnswer {
		answer = c.left.Answer
	}
	r := newRecord(c.Core.Adapter, c.Fingerprint, answer)
	if c.Core.sealer != nil {
		r = c.Core.sealer.seal(r, c.Key)
	}
	return r
}

// newRecord returns what to store for a run: a tombstone if there is no answer.
func newRecord(a Adapter, fingerprint []byte, answer *Answer) []byte {
	r := Record{Version: recordVersion, Adapter: string(a), Fingerprint: fingerprint}
	if answer == nil {
		return r.encode(nil)
	}
	shown := *answer
	shown.Header, shown.Trailer = toJSON(answer.Header), toJSON(answer.Trailer)
	r.Answer = &shown
	return r.encode(answer.Body)
}

const (
	recordVersion = 1
	checksumBytes = 4
)

// recordBegin is how each head begins.
var recordBegin = []byte(`{"onerun":`)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encode returns what to store for a record that has its version, with a body.
func (r *Record) encode(body []byte) []byte {
	var head bytes.Buffer
	enc := json.NewEncoder(&head)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(r) // there is nothing in it that could fail
	h := bytes.TrimSuffix(head.Bytes(), []byte("\n"))
	b := make([]byte, 0, binary.MaxVarintLen32+len(h)+len(body)+checksumBytes)
	b = append(append(binary.AppendUvarint(b, uint64(len(h))), h...), body...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// judgeRecord is judge for a call whose work is done.
func (c *Call) judgeRecord(done *guard.DoneError) {
	c.Label = done.Label
	r, err := c.Core.read(done.Record, c.Key)
	switch {
	case err != nil:
		c.refuse(idempotency.NotReplayable, 0, err)
	case !Same(c.Fingerprint, r.Fingerprint):
		c.refuse(idempotency.Mismatch, 0, nil)
	case c.Core.Mode == idempotency.Reject:
		c.refuse(idempotency.Done, done.Left, nil)
	case r.Answer == nil:
		c.refuse(idempotency.NotReplayable, 0, nil)
	default:
		c.refuse(idempotency.Replayed, 0, nil)
		if err := c.Transport.Read(r.Answer); err != nil {
			c.refuse(idempotency.NotReplayable, 0, err)
		}
	}
}

// read returns what was found in the store under a key.
func (c *Core) read(stored []byte, key string) (*Record, error) {
	r, body, err := decode(stored)
	switch {
	case err != nil:
	case c.sealer != nil:
		r, body, err = c.sealer.open(r, body, key)
	case r.Key != "":
		err = Unreadable("it is encrypted, and there is no key", nil)
	}
	if err == nil {
		err = r.check(body, c.Adapter)
	}
	return r, err
}

// decode returns a record and its body, which is a part of b. Reading allocates in proportion to
// the length of b. An error is an *idempotency.RecordError.
func decode(b []byte) (r *Record, body []byte, err error) {
	n, size := binary.Uvarint(b)
	if size <= 0 || len(b)-size < checksumBytes || n > uint64(len(b)-size-checksumBytes) ||
		!bytes.HasPrefix(b[size:size+int(n)], recordBegin) {
		return nil, nil, Unreadable("it is none of ours", nil)
	}
	end := len(b) - checksumBytes
	r = new(Record)
	switch err := json.Unmarshal(b[size:size+int(n)], r); {
	case err != nil:
		return nil, nil, Unreadable(Corrupt, err)
	case r.Version != recordVersion:
		return nil, nil, Unreadable(fmt.Sprintf("it has version %d, which is unknown here", r.Version), nil)
	case crc32.Checksum(b[:end], castagnoli) != binary.BigEndian.Uint32(b[end:]):
		return nil, nil, Unreadable("its checksum is wrong", nil)
	}
	return r, b[size+int(n) : end : end], nil
}

// check looks at a record that is to be one of the adapter, and gives its answer the body. An error
// is an *idempotency.RecordError.
func (r *Record) check(body []byte, a Adapter) (err error) {
	switch {
	case r.Adapter != string(a):
		return Unreadable("its adapter is another one", nil)
	case len(r.Fingerprint) != 0 && len(r.Fingerprint) != FingerprintSize, r.Answer == nil && len(body) > 0:
		return Unreadable(Corrupt, nil)
	case r.Answer == nil:
		return nil
	}
	r.Answer.Body = body
	for _, fields := range []*map[string][]string{&r.Answer.Header, &r.Answer.Trailer} {
		if *fields, err = fromJSON(*fields); err != nil {
			return Unreadable(Corrupt, err)
		}
	}
	return nil
}

// Same compares two fingerprints, in constant time. An empty one is the same as any: there was
// none when the record was made, or there is none now.
func Same(a, b []byte) bool { return len(a) == 0 || len(b) == 0 || hmac.Equal(a, b) }

// Corrupt is the reason for which a record cannot be read whose parts are wrong.
const Corrupt = "it is corrupt"

// Unreadable returns the error for a record that cannot be read. err may be nil.
func Unreadable(reason string, err error) error {
	return &idempotency.RecordError{Reason: reason, Err: err}
}

// Recordable reports whether fields are within what a record may hold.
func Recordable(fields map[string][]string, valid func(name, value string) bool) bool {
	lines, size := 0, 0
	for name, values := range fields {
		lines += len(values)
		size += len(name)
		for _, v := range values {
			size += len(v)
			if !valid(name, v) {
				return false
			}
		}
	}
	return len(fields) <= MaxFieldNames && lines <= MaxFieldLines && size <= MaxFieldBytes
}

// FingerprintSize is the length of a fingerprint in bytes.
const FingerprintSize = sha256.Size

// The bounds of the header of an answer, and of its trailer. An answer beyond them is not recorded,
// and a record beyond them is not believed.
const (
	MaxFieldNames = 256
	MaxFieldLines = 1024
	MaxFieldBytes = 64 << 10
)

// notText begins a value that is in base64.
const notText = "base64:"

// toJSON returns fields whose values JSON has as they are, without growing much.
func toJSON(fields map[string][]string) map[string][]string {
	return mapped(fields, func(v string) bool { return !isText(v) }, func(v string) string {
		return notText + base64.StdEncoding.EncodeToString([]byte(v))
	})
}

// fromJSON undoes toJSON.
func fromJSON(fields map[string][]string) (_ map[string][]string, err error) {
	return mapped(fields, func(v string) bool { return strings.HasPrefix(v, notText) }, func(v string) string {
		raw, failed := base64.StdEncoding.DecodeString(v[len(notText):])
		if failed != nil {
			err = failed
		}
		return string(raw)
	}), err
}

// mapped returns the fields with f of the values that which chooses.
func mapped(fields map[string][]string, which func(string) bool, f func(string) string) map[string][]string {
	all, cloned := fields, false
	for name, values := range fields {
		if !slices.ContainsFunc(values, which) {
			continue
		}
		if !cloned {
			all, cloned = maps.Clone(fields), true
		}
		to := slices.Clone(values)
		for i, v := range to {
			if which(v) {
				to[i] = f(v)
			}
		}
		all[name] = to
	}
	return all
}

// isText reports whether a value can be read by eye in JSON, which escapes few bytes of it.
func isText(v string) bool {
	escapes := 0
	for _, c := range v {
		switch {
		case c == '"', c == '\\', c == '\t':
			escapes++
		case c < ' ', c == utf8.RuneError, c == '\u2028', c == '\u2029':
			return false
		}
	}
	return escapes <= 2+len(v)/3 && !strings.HasPrefix(v, notText)
}

// NeverReplayed reports whether a header of an answer, or metadata of a reply, is not recorded.
func NeverReplayed(name string) bool {
	return slices.Contains(neverReplayed, textproto.CanonicalMIMEHeaderKey(name))
}

// neverReplayed are the headers of an answer that are not recorded, in the canonical form of HTTP:
// those of one connection or proxy (RFC 9110, section 7.6.1; RFC 9209), those that the server sets
// itself or that measure one run, those that are of one request, such as its ID and what is left of
// its client's quota, and those that are secrets of the call that got them. The last
// are cookies and authentication of RFC 9110, nonces that are used once (RFC 8555, RFC 9449), and
// names by which APIs commonly give out credentials. A pattern such as X-*-Token is not one of
// them: it includes tokens of pages and uploads, without which a replay is of no use.
var neverReplayed = []string{
	"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer",
	"Proxy-Status", "Transfer-Encoding", "Upgrade",

	"Content-Length", "Date", "Server-Timing",

	"Correlation-Id", "Ratelimit", "Ratelimit-Limit", "Ratelimit-Policy", "Ratelimit-Remaining", "Ratelimit-Reset", "Request-Id",
	"Traceresponse", "X-Correlation-Id", "X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset", "X-Request-Id", "X-Trace-Id",

	"Authentication-Info", "Authorization", "Cookie", "Proxy-Authentication-Info", "Set-Cookie", "Set-Cookie2", "Www-Authenticate",
	"Dpop-Nonce", "Replay-Nonce",
	"X-Access-Token", "X-Amz-Security-Token", "X-Api-Key", "X-Auth-Token", "X-Csrf-Token", "X-Refresh-Token", "X-Session-Id",
	"X-Session-Token", "X-Subject-Token", "X-Vault-Token", "X-Xsrf-Token",
}
