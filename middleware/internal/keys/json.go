package keys

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
)

// Why a JSON document has no value of use at a place.
var (
	ErrMissing  = errors.New("is missing")
	ErrNoObject = errors.New("cannot be read: there is no JSON object")
	ErrTwice    = errors.New("is there more than once")
	ErrNoText   = errors.New("is neither a string nor an integer")
)

// JSON returns the value at the end of a path of names: of a field of the object, of a field of
// the object in that, and so on. It has to be a string or an integer; null is a missing one. A
// name that stands in an object twice is refused, also in other letters (id and ID): decoders
// differ in which of them they take, and encoding/json takes either.
func JSON(object []byte, path []string) (string, error) {
	for _, name := range path {
		value, err := field(object, name)
		if err != nil {
			return "", err
		}
		object = value
	}
	return text(object)
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
		at, err := d.Token()
		if err != nil {
			return nil, ErrNoObject
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

// text returns a string or an integer as text.
func text(value json.RawMessage) (string, error) {
	if value[0] == '"' {
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
