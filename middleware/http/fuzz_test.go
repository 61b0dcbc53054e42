package guardhttp

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

var (
	// fuzzRaw is a key without quotes: printable ASCII, no spaces, no quotes.
	fuzzRaw = regexp.MustCompile(`^ *([!#-~]{1,255}) *$`)
	// fuzzQuoted is a String of RFC 8941, section 3.3.3, with the parameters of section 3.1.2, of
	// which those with a comma are left out here.
	fuzzQuoted = regexp.MustCompile(`^ *"((?:[ !#-\[\]-~]|\\["\\])*)"` +
		`(?:; *[a-z*][a-z0-9_.*-]*(?:=(?:-?[0-9]{1,12}(?:\.[0-9]{1,3})?|"(?:[ !#-+\--\[\]-~]|\\["\\])*"|[A-Za-z*][!#$%&'*+.^_` + "`" + `|~0-9A-Za-z:/-]*|:[A-Za-z0-9+/=]*:|\?[01]))?)* *$`)
	// fuzzBegins is how an accepted quoted key begins, whatever its parameters are.
	fuzzBegins = regexp.MustCompile(`^ *"((?:[ !#-\[\]-~]|\\["\\])*)"(?:;|$| )`)

	fuzzUnescape = strings.NewReplacer(`\"`, `"`, `\\`, `\`)
	fuzzEscape   = strings.NewReplacer(`"`, `\"`, `\`, `\\`)
)

// The parser of the Idempotency-Key header against the two grammars, written down as patterns.
func FuzzIdempotencyKey(f *testing.F) {
	for _, seed := range []string{
		"", " ", `""`, `"`, `abc`, `"abc"`, ` abc `, `"a b"`, `"a\"b\\c"`, `"a\b"`, `"abc";a=1`, `"abc"; a="x;\"y"; b;c=?1;*d=:YQ==:;e=-1.5;f=a/b:c`,
		`"abc" ;a`, `"abc";`, `"abc";A`, `"abc"x`, `"a","b"`, `a,b`, `a"b`, `"abc\`, "a\tb", "a\x00b", "a\x7f", "\u00e9", "\"\u00e9\"", "\xff", `\`, `"\\"`, `"\""`,
		strings.Repeat("k", 255), strings.Repeat("k", 256), `"` + strings.Repeat("k", 255) + `"`, `"` + strings.Repeat(`\"`, 256) + `"`,
		`8e03978e-40d5-43e8-bc93-6894a57f9324`, `{a}:b`, `?0`, `:YQ==:`, `1.5`, `("a")`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		key, err := parseKey(line)
		r := httptest.NewRequest(http.MethodPost, "/", http.NoBody)
		r.Header["Idempotency-Key"] = []string{line}
		if again, err2 := IdempotencyKey(r); again != key || (err == nil) != (err2 == nil) {
			t.Fatalf("%q: %q %v, and in a request %q %v", line, key, err, again, err2)
		}
		var want string
		valid := true // as the patterns say
		if m := fuzzRaw.FindStringSubmatch(line); m != nil {
			want = m[1]
		} else if m := fuzzQuoted.FindStringSubmatch(line); m != nil {
			want = fuzzUnescape.Replace(m[1])
			valid = len(want) >= 1 && len(want) <= 255
		} else {
			valid = false
		}
		if valid && (err != nil || key != want) {
			t.Fatalf("%q is %q, and not %q, %v", line, want, key, err)
		}
		if err != nil {
			var invalid *idempotency.KeyError
			if !errors.As(err, &invalid) || errors.Is(err, idempotency.ErrNoKey) || invalid.Reason == "" {
				t.Fatalf("%q: %v", line, err)
			}
			if len(line) > 4 && strings.Contains(invalid.Reason, line) {
				t.Fatalf("%q shows in %q", line, invalid.Reason)
			}
			return
		}
		if len(key) < 1 || len(key) > 255 || strings.ContainsFunc(key, func(c rune) bool { return c < ' ' || c > '~' }) {
			t.Fatalf("%q is no key, of %q", key, line)
		}
		if !valid { // quoted, with parameters that mean nothing
			m := fuzzBegins.FindStringSubmatch(line)
			if m == nil || fuzzUnescape.Replace(m[1]) != key {
				t.Fatalf("%q is taken for %q", line, key)
			}
		}
		for _, same := range []string{`"` + fuzzEscape.Replace(key) + `"`, ` "` + fuzzEscape.Replace(key) + `";a=1  `} {
			if again, err := parseKey(same); err != nil || again != key {
				t.Fatalf("%q is %q, and %q is %q, %v", line, key, same, again, err)
			}
		}
	})
}

// fuzzEqual reports whether two records are the same, in which nothing and an empty list are.
func fuzzEqual(a, b *record) bool {
	if !bytes.Equal(a.fingerprint, b.fingerprint) || a.origin != b.origin || (a.answer == nil) != (b.answer == nil) {
		return false
	}
	if a.answer == nil {
		return true
	}
	return a.answer.status == b.answer.status && bytes.Equal(a.answer.body, b.answer.body) &&
		fuzzEqualHeaders(a.answer.header, b.answer.header)
}

func fuzzEqualHeaders(a, b http.Header) bool {
	for name, values := range a {
		others, ok := b[name]
		if !ok || len(values) != len(others) || len(values) > 0 && !reflect.DeepEqual(values, others) {
			return false
		}
	}
	return len(a) == len(b)
}

func fuzzSum(b []byte) []byte {
	return binary.BigEndian.AppendUint32(bytes.Clone(b), crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

// Whatever stands in the store: reading it does not panic and is bounded, and what is accepted is
// a record.
func FuzzRecord(f *testing.F) {
	print := bytes.Repeat([]byte{7}, fingerprintSize)
	for _, r := range []*record{
		{}, {fingerprint: print}, {origin: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
		{answer: &answer{status: 204}},
		{fingerprint: print, origin: "o", answer: &answer{status: 201, header: http.Header{"Link": {"a", "b"}, "X-None": {}, "x-lower": {""}}, body: []byte("body")}},
		{answer: &answer{status: 599, header: http.Header{"X": {strings.Repeat("v", 300)}}, body: bytes.Repeat([]byte{0xff}, 300)}},
	} {
		b := r.encode()
		f.Add(b)
		f.Add(b[:len(b)-4])
	}
	f.Add([]byte("or\x01"))
	f.Add([]byte("or\x02\x03key"))
	f.Add([]byte("or\x01\x01\x00\x00\xc8\x01\x01\x01X\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Add([]byte("or\x01\x01\x00\x00\xc8\x01\x80\x02"))
	f.Add([]byte("or\x01\x01\x00\x00\xc8\x01\x02\x01X\x00\x01X\x01\x01v\x00")) // one name twice
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, b := range [][]byte{data, fuzzSum(data), fuzzSum(append([]byte("or\x01"), data...))} {
			before := bytes.Clone(b)
			r, err := decode(b)
			if !bytes.Equal(before, b) {
				t.Fatal("what was read was changed")
			}
			if err != nil {
				var unreadable *idempotency.RecordError
				if r != nil || !errors.As(err, &unreadable) || unreadable.Reason == "" {
					t.Fatalf("%v %v", r, err)
				}
				continue
			}
			fuzzWithinBounds(t, r, len(b))
			again, err := decode(r.encode())
			if err != nil || !fuzzEqual(r, again) {
				t.Fatalf("%+v\n%+v %v", r, again, err)
			}
		}
	})
}

func fuzzWithinBounds(t *testing.T, r *record, size int) {
	t.Helper()
	if n := len(r.fingerprint); n != 0 && n != fingerprintSize || len(r.origin) > maxOrigin {
		t.Fatalf("%+v", r)
	}
	if r.answer == nil {
		return
	}
	for _, h := range []http.Header{r.answer.header} {
		lines, text := 0, 0
		for name, values := range h {
			lines += len(values)
			text += len(name) + len(strings.Join(values, ""))
			if !validName(name) || strings.ContainsAny(strings.Join(values, ""), "\r\n\x00") {
				t.Fatalf("a header %q: %q", name, values)
			}
		}
		if len(h) > maxHeaderNames || lines > maxHeaderLines || text > maxHeaderBytes || len(r.answer.body) > size {
			t.Fatalf("%d names, %d lines, %d bytes, %d of a body", len(h), lines, text, len(r.answer.body))
		}
	}
	if r.answer.status < 200 || r.answer.status > 999 {
		t.Fatal(r.answer.status)
	}
}

// What is recorded is read again as it was.
func TestRecord_roundTrip(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	text := func(most int, letters string) string {
		b := make([]byte, random.IntN(most+1))
		for i := range b {
			b[i] = letters[random.IntN(len(letters))]
		}
		return string(b)
	}
	bytesOf := func(most int) []byte {
		b := make([]byte, random.IntN(most+1))
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		return b
	}
	for range 3000 {
		r := &record{origin: string(bytesOf(maxOrigin))}
		if random.IntN(2) == 0 {
			r.fingerprint = bytes.Repeat(bytesOf(1), fingerprintSize)
		}
		if random.IntN(4) > 0 {
			r.answer = &answer{status: 200 + random.IntN(800), header: http.Header{}, body: bytesOf(1 << random.IntN(12))}
			for _, h := range []http.Header{r.answer.header} {
				for range random.IntN(12) {
					values := make([]string, random.IntN(4))
					for i := range values {
						values[i] = text(200, "abc \t\x80\xff:;,\"")
					}
					h["X-"+text(20, "abcABC-_.~!")] = values
				}
				require.True(t, recordable(h))
			}
		}
		again, err := decode(r.encode())
		require.NoError(t, err)
		require.True(t, fuzzEqual(r, again), "%+v\n%+v", r, again)
	}
}

// What may be recorded may be read, up to the bounds, and what may not is neither.
func TestRecord_bounds(t *testing.T) {
	t.Parallel()
	many := func(names, lines, size int) http.Header {
		h := http.Header{}
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
	long := strings.Repeat("v", (maxHeaderBytes-1)/2) // with another, and a name of two bytes
	for name, c := range map[string]struct {
		header http.Header
		ok     bool
	}{
		"names":                       {many(maxHeaderNames, 0, 0), true},
		"too many names":              {many(maxHeaderNames+1, 0, 0), false},
		"lines":                       {many(0, maxHeaderLines, 0), true},
		"too many lines":              {many(0, maxHeaderLines+1, 0), false},
		"bytes":                       {many(3, 3, maxHeaderBytes), true},
		"too many bytes":              {many(3, 3, maxHeaderBytes+1), false},
		"a control":                   {http.Header{"X": {"\x01"}}, false},
		"lines of two":                {http.Header{"A": make([]string, maxHeaderLines-1), "B": {""}}, true},
		"too many of two":             {http.Header{"A": make([]string, maxHeaderLines-1), "B": {"", ""}}, false},
		"bytes of two":                {http.Header{"AB": {long, long}}, true},
		"too many bytes of two":       {http.Header{"AB": {long, long + "v"}}, false},
		"too many bytes of two names": {http.Header{"AB": {long}, "C": {long}}, false},
	} {
		r := &record{answer: &answer{status: 200, header: c.header}}
		require.Equal(t, c.ok, recordable(c.header), name)
		again, err := decode(r.encode())
		require.Equal(t, c.ok, err == nil, "%s: %v", name, err)
		if c.ok {
			require.True(t, fuzzEqual(r, again))
		}
	}
	// which are left out of a record, see replayable
	for _, name := range []string{"", "X Bad", "X-Bad:", "X-\r\nBad", "\x00"} {
		_, err := decode((&record{answer: &answer{status: 200, header: http.Header{name: {"v"}}}}).encode())
		require.Error(t, err, "%q", name)
		require.Empty(t, replayable(http.Header{name: {"v"}}, nil))
	}
	for length := range 256 {
		_, err := decode((&record{fingerprint: make([]byte, length)}).encode())
		require.Equal(t, length == 0 || length == fingerprintSize, err == nil, "%d", length)
		_, err = decode(fuzzSum([]byte{'o', 'r', versionPlain, kindTombstone, byte(length), 0}))
		require.Equal(t, length == 0, err == nil, "%d", length)
	}
	for length, ok := range map[int]bool{maxOrigin: true, maxOrigin + 1: false} {
		_, err := decode((&record{origin: strings.Repeat("o", length)}).encode())
		require.Equal(t, ok, err == nil)
	}
	for status, ok := range map[int]bool{0: false, 101: false, 199: false, 200: true, 999: true, 1000: false} {
		_, err := decode((&record{answer: &answer{status: status}}).encode())
		require.Equal(t, ok, err == nil, "%d", status)
	}
}

// Row 38: a small record that announces large sizes causes no large allocations. Not in parallel:
// it counts allocations.
func TestRecord_promisesAreNotBelieved(t *testing.T) {
	most := binary.AppendUvarint(nil, 1<<62)
	cat := func(parts ...[]byte) []byte {
		return fuzzSum(bytes.Join(append([][]byte{[]byte("or\x01")}, parts...), nil))
	}
	lines := binary.AppendUvarint(nil, maxHeaderLines)
	var names []byte
	for range 200 { // each with as many lines as there may be, and none of them there
		names = append(append(names, 1, 'X'), lines...)
	}
	for name, b := range map[string][]byte{
		"origin": cat([]byte{1, 0}, most),
		"names":  cat([]byte{1, 0, 0, 0xc8, 1}, most),
		"name":   cat([]byte{1, 0, 0, 0xc8, 1, 1}, most),
		"lines":  cat([]byte{1, 0, 0, 0xc8, 1, 1, 1, 'X'}, most),
		"value":  cat([]byte{1, 0, 0, 0xc8, 1, 1, 1, 'X', 1}, most),
		"body":   cat([]byte{1, 0, 0, 0xc8, 1, 0}, most),
		"within": cat([]byte{1, 0, 0, 0xc8, 1, 0x80, 2, 1, 'X'}, lines),
		"again":  cat([]byte{1, 0, 0, 0xc8, 1, 200, 1}, names),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := decode(b)
		runtime.ReadMemStats(&after)
		require.Error(t, err, name)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20), name)
	}
}

// fuzzTask receives a field from encoding/json, each time that it occurs, in any letter case.
type fuzzTask struct {
	times int
	value json.RawMessage
}

func (x *fuzzTask) UnmarshalJSON(b []byte) error {
	x.times++
	x.value = bytes.Clone(b)
	return nil
}

var fuzzReplacement = regexp.MustCompile(`(?i)\\ufffd|\x{fffd}`)

// fuzzText reports whether encoding/json has replaced nothing in a string that it has decoded.
func fuzzText(raw []byte) bool {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return true // it is no string
	}
	spelled := strings.ReplaceAll(string(raw), `\\`, "")
	invalid := 0
	for i, r := range spelled {
		if r == utf8.RuneError && !strings.HasPrefix(spelled[i:], "\ufffd") {
			invalid++
		}
	}
	return invalid == 0 && strings.Count(text, "\ufffd") == len(fuzzReplacement.FindAllString(spelled, -1))
}

// fuzzJSON is what a key is, by encoding/json's own decoding into a struct and into a map: valid,
// or missing, or neither.
func fuzzJSON(body []byte) (key string, valid, absent bool) {
	var object struct {
		Task fuzzTask `json:"task"`
	}
	var names map[string]json.RawMessage
	if json.Unmarshal(body, &object) != nil || json.Unmarshal(body, &names) != nil || names == nil {
		return "", false, false
	}
	if object.Task.times > 1 {
		return "", false, false
	}
	d := json.NewDecoder(bytes.NewReader(body))
	_, _ = d.Token()
	for d.More() {
		begin := d.InputOffset()
		_, _ = d.Token()
		if !fuzzText(bytes.TrimLeft(body[begin:d.InputOffset()], ", \t\r\n")) {
			return "", false, false
		}
		var skipped json.RawMessage
		_ = d.Decode(&skipped)
	}
	value, exact := names["task"]
	if !exact || string(value) == "null" {
		return "", false, true
	}
	var text string
	if json.Unmarshal(value, &text) == nil {
		if !fuzzText(value) {
			return "", false, false
		}
		return text, text != "" && len(text) <= maxText, text == ""
	}
	var number json.Number
	if json.Unmarshal(value, &number) != nil || strings.ContainsAny(number.String(), ".eE") || number == "-0" {
		return "", false, false
	}
	return number.String(), len(number) <= maxText, false
}

// A key in a JSON body against encoding/json.
func FuzzFromJSON(f *testing.F) {
	for _, seed := range []string{
		``, `null`, `{}`, `[]`, `"task"`, `{"task":"a"}`, ` { "x" : [1] , "task" : "b" } `, `{"task":1}`, `{"task":-12345678901234567890}`, `{"task":1.5}`, `{"task":1e3}`,
		`{"task":-0}`, `{"task":0}`, `{"task":01}`, `{"task":null}`, `{"task":""}`, `{"task":true}`, `{"task":{}}`, `{"task":"a","task":"b"}`, `{"task":"a","TASK":"b"}`,
		`{"TASK":"a"}`, `{"ta\u017fk":"a"}`, `{"task":"a","ta\u017fk":"b"}`, "{\"tas\u212a\":1,\"task\":2}", `{"t\u0061sk":"a"}`, `{"task":"a"}x`, `{"task":"a"} {}`,
		`{"task":"a",}`, `{"task":"a"`, `{"task" "a"}`, `{"task":"\ud800"}`, `{"task":"\ud83d\ude00"}`, `{"task":"\ude00\ud83d"}`, `{"task":"\ufffd"}`, "{\"task\":\"\ufffd\"}", `{"\udfff":1,"task":"a"}`, `{"task":"\\ud800"}`, "{\"task\":\"\xff\"}", "{\"ta\xffsk\":1}", "\ufeff{\"task\":1}", `{"other":{"task":1,"task":2},"task":"a"}`,
		`{"task":[[[[[[]]]]]]}`, `{"other":[}],"task":1}`, `{"task":"a" "b":1}`, "{\"task\":\"a\nb\"}", `{"task":nul}`, `{,"task":1}`, `{"task":"a",,"b":1}`, `{"":1,"task":2}`,
	} {
		f.Add([]byte(seed))
	}
	function := FromJSON("task")
	f.Fuzz(func(t *testing.T, body []byte) {
		r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
		key, err := function(r)
		want, valid, absent := fuzzJSON(body)
		var invalid *idempotency.KeyError
		switch {
		case valid:
			if err != nil || key != want {
				t.Fatalf("%q: %q, and not %q, %v", body, want, key, err)
			}
		case !errors.As(err, &invalid):
			t.Fatalf("%q: %q, %v", body, key, err)
		case errors.Is(err, idempotency.ErrNoKey) != absent:
			t.Fatalf("%q: missing %v, and not %v", body, absent, err)
		}
		rest := new(bytes.Buffer)
		if _, err := rest.ReadFrom(r.Body); err != nil || !bytes.Equal(rest.Bytes(), body) {
			t.Fatalf("%q was left of %q, %v", rest, body, err)
		}
	})
}
