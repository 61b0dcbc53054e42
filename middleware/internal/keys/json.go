package keys

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Why a JSON document has no value of use at a place.
var (
	ErrNoObject = errors.New("cannot be read: there is no JSON object")
	ErrTwice    = errors.New("is there more than once")
	ErrNoText   = errors.New("is neither a string nor an integer")
	ErrNoUTF8   = errors.New("has bytes or escapes that stand for no character")
)

// JSON returns the value at the end of a path of names: of a field of the object, of a field of
// the object in that, and so on. It has to be a string or an integer; null is a missing one. A
// name that stands in an object twice is refused, also in other letters (id and ID): decoders
// differ in which of them they take, and encoding/json takes either. So is a name or a value with
// bytes that are not UTF-8, or half of a surrogate pair: encoding/json replaces each of these by
// U+FFFD, so that two values would be one key.
func JSON(object []byte, path []string) (string, error) {
	for _, name := range path {
		value, err := field(object, name)
		if err != nil {
			return "", err
		}
		object = value
	}
	return scalar(object)
}

// field returns the value of a field of an object.
func field(object []byte, name string) (json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(object))
	if first, err := d.Token(); err != nil || first != json.Delim('{') {
		return nil, ErrNoObject
	}
	var value json.RawMessage
	seen := 0
	for d.More() {
		begin := d.InputOffset()
		at, err := d.Token()
		if err != nil {
			return nil, ErrNoObject
		}
		if !isText(object[begin:d.InputOffset()]) {
			return nil, ErrNoUTF8
		}
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			return nil, ErrNoObject
		}
		if found, _ := at.(string); strings.EqualFold(found, name) {
			seen++
			if found == name {
				value = v
			}
		}
	}
	if _, err := d.Token(); err != nil { // the brace at its end
		return nil, ErrNoObject
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, ErrNoObject
	}
	switch {
	case seen > 1:
		return nil, ErrTwice
	case value == nil || string(value) == "null":
		return nil, ErrMissing
	}
	return value, nil
}

// scalar returns a string or an integer as text.
func scalar(value json.RawMessage) (string, error) {
	if value[0] == '"' {
		if !isText(value) {
			return "", ErrNoUTF8
		}
		var s string
		if err := json.Unmarshal(value, &s); err != nil {
			return "", ErrNoText
		}
		return s, nil
	}
	s := string(value)
	digits := strings.TrimPrefix(s, "-")
	if digits == "" || strings.Trim(digits, "0123456789") != "" || s == "-0" {
		return "", ErrNoText
	}
	return s, nil
}

// isText reports whether a JSON string, which can be parsed, stands for Unicode text: each escape
// of a surrogate is half of a pair, and the rest is UTF-8 (RFC 8259, section 8.2).
func isText(raw []byte) bool {
	if !utf8.Valid(raw) {
		return false
	}
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			return true
		}
		first, ok := escaped(raw[i:])
		if !ok { // an escape of two characters
			raw = raw[i+2:]
			continue
		}
		raw = raw[i+6:]
		if !utf16.IsSurrogate(first) {
			continue
		}
		second, ok := escaped(raw)
		if !ok || utf16.DecodeRune(first, second) == utf8.RuneError {
			return false
		}
		raw = raw[6:]
	}
}

// escaped returns the code unit of an escape such as \u00e9 at the beginning of raw.
func escaped(raw []byte) (unit rune, ok bool) {
	if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(raw[2:6]), 16, 16)
	return rune(n), err == nil
}
