package idempotent

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// readPlain reads a record that is not encrypted.
func readPlain(b []byte, a Adapter) (*Record, error) {
	return (&Core{Settings: &Settings{Adapter: a}}).read(b, "k")
}

// withSum returns a record with the checksum that belongs to it.
func withSum(b []byte) []byte {
	return binary.BigEndian.AppendUint32(bytes.Clone(b), crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

// withHead returns a record with that head and body.
func withHead(head, body string) []byte {
	return withSum([]byte(string(binary.AppendUvarint(nil, uint64(len(head)))) + head + body))
}

// equal reports whether two records are the same, in which nothing and an empty list are.
func equal(a, b *Record) bool {
	same := func(a, b map[string][]string) bool {
		for name, values := range a {
			others, ok := b[name]
			if !ok || len(values) != len(others) || len(values) > 0 && !reflect.DeepEqual(values, others) {
				return false
			}
		}
		return len(a) == len(b)
	}
	if !bytes.Equal(a.Fingerprint, b.Fingerprint) || (a.Answer == nil) != (b.Answer == nil) {
		return false
	}
	return a.Answer == nil || a.Answer.Status == b.Answer.Status && a.Answer.Type == b.Answer.Type && bytes.Equal(a.Answer.Body, b.Answer.Body) &&
		same(a.Answer.Header, b.Answer.Header) && same(a.Answer.Trailer, b.Answer.Trailer)
}

// A record can be read by eye.
func TestRecord_byEye(t *testing.T) {
	t.Parallel()
	answer := &Answer{Status: 201, Header: map[string][]string{"Link": {"<a>; rel=\"b\"", "ü"}, "X-Raw": {"\xff"}}, Body: []byte("the answer")}
	b := newRecord(HTTP, []byte(strings.Repeat("f", 32)), answer)
	const head = `{"onerun":1,"adapter":"http","fingerprint":"ZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmY=",` +
		`"answer":{"status":201,"header":{"Link":["<a>; rel=\"b\"","ü"],"X-Raw":["base64:/w=="]}}}`
	require.Contains(t, string(b), head+"the answer")
	require.Contains(t, string(newRecord(GRPC, nil, nil)), `{"onerun":1,"adapter":"grpc"}`)
}

// Other values that can be there.
func TestRecord_thatIsNone(t *testing.T) {
	t.Parallel()
	huge := strings.Repeat("\x00huge", 200_000) // less than guard.MaxRecord
	const head = `{"onerun":1,"adapter":"http"`
	for name, c := range map[string]struct {
		record []byte
		reason string
	}{
		"empty":                    {nil, "none of ours"},
		"a text":                   {[]byte("hello, world"), "none of ours"},
		"JSON":                     {[]byte(`{"status":200,"body":"x"}`), "none of ours"},
		"JSON with its length":     {withHead(`{"status":200,"body":"x"}`, ""), "none of ours"},
		"a lease":                  {[]byte("Hid\n17\nlabel"), "none of ours"},
		"huge":                     {[]byte(huge), "none of ours"},
		"a length without an end":  {withSum([]byte(strings.Repeat("\xff", 100))), "none of ours"},
		"a length beyond its end":  {withSum(append(binary.AppendUvarint(nil, 1<<62), head...)), "none of ours"},
		"a head that is cut":       {withHead(head, ""), "corrupt"},
		"the next version":         {withHead(`{"onerun":2}`, ""), "version 2"},
		"version 0":                {withHead(`{"onerun":0}`, ""), "version 0"},
		"a version that is none":   {withHead(`{"onerun":"1"}`, ""), "corrupt"},
		"encrypted":                {withHead(`{"onerun":1,"key":"a"}`, "x"), "encrypted"},
		"a wrong sum":              {append(withHead(head+"}", "")[:30], 0, 0, 0, 0), "checksum"},
		"another adapter":          {withHead(`{"onerun":1,"adapter":"x"}`, ""), "adapter"},
		"no adapter":               {withHead(`{"onerun":1}`, ""), "adapter"},
		"of gRPC":                  {newRecord(GRPC, nil, &Answer{}), "adapter"},
		"a tombstone with a body":  {withHead(head+"}", "x"), "corrupt"},
		"huge, in our name":        {withHead(head+"}", huge), "corrupt"},
		"a short fingerprint":      {withHead(head+`,"fingerprint":"AA=="}`, ""), "corrupt"},
		"a fingerprint of numbers": {withHead(head+`,"fingerprint":1}`, ""), "corrupt"},
		"a value that is no text":  {withHead(head+`,"answer":{"header":{"X":["base64:?"]}}}`, ""), "corrupt"},
	} {
		r, err := readPlain(c.record, HTTP)
		var unreadable *idempotency.RecordError
		require.ErrorAs(t, err, &unreadable, "%s: %v", name, r)
		require.Contains(t, unreadable.Reason, c.reason, name)
	}
}

// Whatever stands in the store: reading it does not panic, and what is accepted is a record.
func FuzzRecord(f *testing.F) {
	fingerprint := bytes.Repeat([]byte{7}, FingerprintSize)
	for _, b := range [][]byte{
		newRecord(HTTP, nil, nil), newRecord(HTTP, fingerprint, nil),
		newRecord(HTTP, nil, &Answer{Status: 204}),
		newRecord(HTTP, fingerprint, &Answer{Status: 201, Header: map[string][]string{"Link": {"a", "b"}, "X-None": {}, "x-lower": {""}}, Body: []byte("body")}),
		newRecord(HTTP, nil, &Answer{Status: 599, Trailer: map[string][]string{"X": {strings.Repeat("\xff", 300)}}, Body: bytes.Repeat([]byte{0xff}, 300)}),
		withHead(`{"onerun":1,"key":"a"}`, "x"), []byte("\x05"), {},
	} {
		f.Add(b)
		f.Add(b[:max(0, len(b)-checksumBytes)])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, b := range [][]byte{data, withSum(data)} {
			before := bytes.Clone(b)
			r, err := readPlain(b, HTTP)
			if !bytes.Equal(before, b) {
				t.Fatal("what was read was changed")
			}
			if err != nil {
				var unreadable *idempotency.RecordError
				if !errors.As(err, &unreadable) || unreadable.Reason == "" {
					t.Fatalf("%v %v", r, err)
				}
				continue
			}
			if n := len(r.Fingerprint); n != 0 && n != FingerprintSize || r.Answer != nil && len(r.Answer.Body) > len(b) {
				t.Fatalf("%+v", r)
			}
			again, err := readPlain(newRecord(HTTP, r.Fingerprint, r.Answer), HTTP)
			if err != nil || !equal(r, again) {
				t.Fatalf("%+v\n%+v %v", r, again, err)
			}
		}
	})
}

// What is recorded is read again as it was, whatever bytes it has.
func TestRecord_roundTrip(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	text := func(most int, letters string) string {
		var b strings.Builder
		runes := []rune(letters)
		for range random.IntN(most + 1) {
			if r := runes[random.IntN(len(runes))]; r == '?' {
				b.WriteByte(byte(random.Uint32()))
			} else {
				b.WriteRune(r)
			}
		}
		return b.String()
	}
	fields := func() map[string][]string {
		all := map[string][]string{}
		for range random.IntN(12) {
			values := make([]string, random.IntN(4))
			for i := range values {
				values[i] = text(40, []string{"abc <>&ü;,", "abc\"\\\t", "ab?", "a\u2028\ufffd", "base64:"}[random.IntN(5)])
			}
			all["X-"+text(20, "abcABC-_.~!")] = values
		}
		return all
	}
	for range 3000 {
		r := &Record{}
		if random.IntN(2) == 0 {
			r.Fingerprint = bytes.Repeat([]byte{byte(random.Uint32())}, FingerprintSize)
		}
		if random.IntN(4) > 0 {
			r.Answer = &Answer{Status: random.IntN(1000), Type: text(9, "abc/."), Header: fields(), Body: []byte(text(1<<random.IntN(12), "?"))}
			if random.IntN(2) == 0 {
				r.Answer.Trailer = fields()
			}
		}
		again, err := readPlain(newRecord(HTTP, r.Fingerprint, r.Answer), HTTP)
		require.NoError(t, err)
		require.True(t, equal(r, again), "%+v\n%+v", r.Answer, again.Answer)
	}
	for _, v := range []string{"base64:", "base64:?", "base64:/w==", "\ufffd", "\xff", "\x00", "\u2028", "\x7f"} {
		again, err := readPlain(newRecord(GRPC, nil, &Answer{Header: map[string][]string{"x": {v}}}), GRPC)
		require.NoError(t, err)
		require.Equal(t, v, again.Answer.Header["x"][0])
	}
}

// The largest answer with the largest fields is a record that the Guard takes, whatever bytes are
// in it, also if it is encrypted.
func TestRecord_theLargestIsTaken(t *testing.T) {
	t.Parallel()
	seal, err := newSealer([]idempotency.EncryptionKey{{ID: strings.Repeat("i", maxKeyID), Secret: make([]byte, 32)}})
	require.NoError(t, err)
	for _, v := range []string{"v", "\"", "\"\"v", "\"vv", "\x00", "\xff", "\u2028", "\u2028vvvvvvvvvvvv", "<"} {
		lines := make([]string, MaxFieldLines)
		for i := range lines {
			lines[i] = strings.Repeat(v, MaxFieldBytes/MaxFieldLines/len(v))
		}
		for _, values := range [][]string{lines, {strings.Repeat(v, (MaxFieldBytes-1)/len(v))}} {
			fields := map[string][]string{"x": values}
			answer := &Answer{Status: 200, Header: fields, Trailer: fields, Body: make([]byte, idempotency.Defaults().MaxAnswer)}
			stored := seal.seal(newRecord(GRPC, make([]byte, FingerprintSize), answer), "k")
			require.Less(t, len(stored), guard.MaxRecord, "%q", v)
		}
	}
}

// What may be recorded is bounded.
func TestRecord_bounds(t *testing.T) {
	t.Parallel()
	many := func(names, lines, size int) map[string][]string {
		h := map[string][]string{}
		for i := range names {
			h["X-"+strings.Repeat("n", i)] = []string{}
		}
		for range lines {
			h["X-Lines"] = append(h["X-Lines"], "")
		}
		used := 0
		for name := range h {
			used += len(name)
		}
		if size > 0 {
			h["X-Size"] = []string{strings.Repeat("v", size-used-len("X-Size"))}
		}
		return h
	}
	long := strings.Repeat("v", (MaxFieldBytes-1)/2) // with another, and a name of two bytes
	for name, c := range map[string]struct {
		fields map[string][]string
		ok     bool
	}{
		"names":                       {many(MaxFieldNames, 0, 0), true},
		"too many names":              {many(MaxFieldNames+1, 0, 0), false},
		"lines":                       {many(0, MaxFieldLines, 0), true},
		"too many lines":              {many(0, MaxFieldLines+1, 0), false},
		"bytes":                       {many(3, 3, MaxFieldBytes), true},
		"too many bytes":              {many(3, 3, MaxFieldBytes+1), false},
		"lines of two":                {map[string][]string{"A": make([]string, MaxFieldLines-1), "B": {""}}, true},
		"too many of two":             {map[string][]string{"A": make([]string, MaxFieldLines-1), "B": {"", ""}}, false},
		"bytes of two":                {map[string][]string{"AB": {long, long}}, true},
		"too many bytes of two":       {map[string][]string{"AB": {long, long + "v"}}, false},
		"too many bytes of two names": {map[string][]string{"AB": {long}, "C": {long}}, false},
	} {
		require.Equal(t, c.ok, Recordable(c.fields, func(_, _ string) bool { return true }), name)
	}
	require.False(t, Recordable(map[string][]string{"x": {"v"}}, func(_, _ string) bool { return false }))
}

// A small record that announces large sizes causes no large allocations. Not in parallel: it counts
// allocations.
func TestRecord_promisesAreNotBelieved(t *testing.T) {
	const head = `{"onerun":1,"adapter":"http","answer":{"status":1e99`
	for _, b := range [][]byte{
		withSum(append(binary.AppendUvarint(nil, 1<<62), head...)),
		withHead(head+"}}", ""),
		withHead(`{"onerun":1,"adapter":"http","answer":{"header":`+strings.Repeat(`{"x":[`, 1000), ""),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := readPlain(b, HTTP)
		runtime.ReadMemStats(&after)
		require.Error(t, err)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
	}
}
