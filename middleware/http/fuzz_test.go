package guardhttp

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/seed-1795987d/onerun/middleware/idempotency"
	"github.com/seed-1795987d/onerun/middleware/internal/keys"
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
		r := httptest.NewRequest(http.MethodPost, "/", http.NoBody)
		r.Header["Idempotency-Key"] = []string{line}
		key, err := IdempotencyKey(r)
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
			r.Header["Idempotency-Key"] = []string{same}
			if again, err := IdempotencyKey(r); err != nil || again != key {
				t.Fatalf("%q is %q, and %q is %q, %v", line, key, same, again, err)
			}
		}
	})
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
		return text, text != "" && len(text) <= keys.Max, text == ""
	}
	var number json.Number
	if json.Unmarshal(value, &number) != nil || strings.ContainsAny(number.String(), ".eE") || number == "-0" {
		return "", false, false
	}
	return number.String(), len(number) <= keys.Max, false
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
