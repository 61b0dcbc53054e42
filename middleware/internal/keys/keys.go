// Package keys has what the middlewares share: it finds keys in headers, in JSON objects and in
// contexts, and hashes the parts of a key. The text of an error says what is wrong with the place
// of a key, and follows the name of the place.
package keys

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Hash hashes the parts, each after its length, so that no two lists of parts share a hash.
func Hash(parts ...string) [sha256.Size]byte {
	size := 0
	for _, p := range parts {
		size += 8 + len(p)
	}
	all := make([]byte, 0, min(size, 1024))
	for _, p := range parts {
		all = binary.BigEndian.AppendUint64(all, uint64(len(p)))
		all = append(all, p...)
	}
	return sha256.Sum256(all)
}

// Join returns a key of n parts, which part returns by their index. It is a hash of them and their
// lengths.
func Join(n int, part func(i int) (string, error)) (string, error) {
	parts := make([]string, n)
	for i := range parts {
		var err error
		if parts[i], err = part(i); err != nil {
			return "", err
		}
	}
	sum := Hash(parts...)
	return hex.EncodeToString(sum[:]), nil
}

// MustName panics, in the name of a function such as "guardhttp: FromJSON", if a name is empty.
func MustName(function string, names ...string) {
	for _, name := range names {
		if strings.TrimSpace(name) == "" {
			panic(function + ": the name must not be empty")
		}
	}
}

// IsName reports whether guard.WithName takes a text, such as the type of a task.
func IsName(text string) bool {
	return text != "" && len(text) <= 128 && !strings.Contains(text, "\x00") && utf8.ValidString(text)
}

// Why there is no key of use in a place.
var (
	ErrMissing  = errors.New("is missing")
	errQuotes   = errors.New("is not one quoted string of RFC 8941")
	errUnquoted = errors.New("has a space or a quote in it, and is not quoted")
	errEmpty    = errors.New("is empty")
	errNoASCII  = errors.New("has a character in it that is not printable ASCII")
)

const (
	// maxHeader is the longest key of a header in bytes: what Stripe and others take.
	maxHeader = 255
	// Max is the longest key in bytes, of those that are not read from a header or metadata.
	Max = 4096
)

// Found returns a value that was found as a key.
func Found(value string) (string, error) {
	switch {
	case value == "":
		return "", ErrMissing
	case len(value) > Max:
		return "", fmt.Errorf("is longer than %d bytes", Max)
	}
	return value, nil
}

// Plain returns the one value of a header, or of metadata, as it is: printable ASCII.
func Plain(values []string) (string, error) {
	switch len(values) {
	case 0:
		return "", ErrMissing
	case 1:
		return text(values[0])
	}
	return "", fmt.Errorf("occurs %d times", len(values))
}

// Header returns the key in the one value of an idempotency-key header: a quoted string (a String
// of RFC 8941, whose parameters are ignored), or raw text.
func Header(values []string) (string, error) {
	if len(values) != 1 {
		return Plain(values)
	}
	line := strings.Trim(values[0], " ") // as RFC 8941, section 4.2 says
	if strings.HasPrefix(line, `"`) {
		key, rest, ok := quoted(line)
		if !ok || !parameters(rest) {
			return "", errQuotes
		}
		return text(key)
	}
	if strings.ContainsAny(line, `" `) {
		return "", errUnquoted
	}
	return text(line)
}

// text returns a text as a key, if it is not empty, nor too long, and printable ASCII.
func text(key string) (string, error) {
	switch {
	case key == "":
		return "", errEmpty
	case len(key) > maxHeader:
		return "", fmt.Errorf("is longer than %d bytes", maxHeader)
	}
	for i := range len(key) {
		if key[i] < ' ' || key[i] > '~' {
			return "", errNoASCII
		}
	}
	return key, nil
}

// quoted returns the content of the quoted string at the beginning of s, and what follows the
// string (RFC 8941, section 4.2.5).
func quoted(s string) (text, rest string, ok bool) {
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch c := s[i]; c {
		case '"':
			return b.String(), s[i+1:], true
		case '\\':
			i++
			if i == len(s) || s[i] != '"' && s[i] != '\\' {
				return "", "", false
			}
			b.WriteByte(s[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", "", false
}

// parameters reports whether s is empty, or the parameters of an Item (RFC 8941, section 4.2.3.2),
// which mean nothing here.
func parameters(s string) bool {
	for s != "" {
		if s[0] != ';' {
			return false
		}
		s = strings.TrimLeft(s[1:], " ")
		name := span(s, "abcdefghijklmnopqrstuvwxyz0123456789_-.*")
		if name == "" || name[0] != '*' && (name[0] < 'a' || name[0] > 'z') {
			return false
		}
		s = s[len(name):]
		value, ok := strings.CutPrefix(s, "=")
		if !ok {
			continue
		}
		if strings.HasPrefix(value, `"`) {
			if _, s, ok = quoted(value); !ok {
				return false
			}
			continue
		}
		end := strings.IndexAny(value+";", `; ,"`)
		if end == 0 {
			return false
		}
		s = value[end:]
	}
	return true
}

// span returns the beginning of s that has only these characters.
func span(s, of string) string { return s[:len(s)-len(strings.TrimLeft(s, of))] }
