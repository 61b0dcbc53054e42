package guardhttp

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
)

// FromJSON returns a KeyFunc that takes a field of the JSON object in the body, or, with more names, of the objects inside of it. The value
// has to be a string or an integer. A name that stands in an object twice is refused, also in other letters (id and ID): decoders differ in
// which of them they take, and encoding/json takes either. It panics without a name.
func FromJSON(field string, inside ...string) KeyFunc {
	names := append([]string{field}, inside...)
	for _, n := range names {
		mustName("FromJSON", n)
	}
	from := "JSON field " + strings.Join(names, ".")
	return func(r *http.Request) (string, error) {
		all, err := wholeBody(r)
		if err != nil {
			return "", err
		}
		key, err := jsonValue(json.RawMessage(all), names)
		switch {
		case errors.Is(err, ErrNoKey):
			return "", missing(from)
		case err != nil:
			return "", &KeyError{From: from, Reason: err.Error()}
		}
		return found(key, from)
	}
}

var (
	errNoObject = errors.New("cannot be read: the body is no JSON object")
	errTwice    = errors.New("stands in the body more than once")
	errNoText   = errors.New("is neither a string nor an integer")
)

// jsonValue returns the value at the end of the path of names.
func jsonValue(object json.RawMessage, names []string) (string, error) {
	for _, name := range names {
		value, err := jsonField(object, name)
		if err != nil {
			return "", err
		}
		object = value
	}
	return jsonText(object)
}

// jsonField returns the value of a field of an object.
func jsonField(object json.RawMessage, name string) (json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(object))
	if first, err := d.Token(); err != nil || first != json.Delim('{') {
		return nil, errNoObject
	}
	var value json.RawMessage
	seen := 0
	for d.More() {
		at, err := d.Token()
		if err != nil {
			return nil, errNoObject
		}
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			return nil, errNoObject
		}
		if text, _ := at.(string); strings.EqualFold(text, name) {
			seen++
			if text == name {
				value = v
			}
		}
	}
	if _, err := d.Token(); err != nil { // the brace at its end
		return nil, errNoObject
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errNoObject
	}
	switch {
	case seen > 1:
		return nil, errTwice
	case value == nil || string(value) == "null":
		return nil, ErrNoKey
	}
	return value, nil
}

// jsonText returns a string or an integer as text.
func jsonText(value json.RawMessage) (string, error) {
	if value[0] == '"' {
		var text string
		if err := json.Unmarshal(value, &text); err != nil {
			return "", errNoText
		}
		return text, nil
	}
	text := string(value)
	digits := strings.TrimPrefix(text, "-")
	if digits == "" || strings.Trim(digits, "0123456789") != "" || text == "-0" {
		return "", errNoText
	}
	return text, nil
}
