// Package keys has what the middlewares share: it hashes the parts of a key, and finds a key in a
// JSON object.
package keys

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
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

// maxHeader is the longest key of a header in bytes: what Stripe and others take.
const maxHeader = 255

// Header returns the key in the value of an idempotency-key header: a quoted string (a String of
// RFC 8941, whose parameters are ignored), or raw text. invalid is "" or the reason why it is no
// key.
func Header(line string) (key, invalid string) {
	line = strings.Trim(line, " ") // as RFC 8941, section 4.2 says
	key = line
	if strings.HasPrefix(line, `"`) {
		var rest string
		var ok bool
		if key, rest, ok = quoted(line); !ok || !parameters(rest) {
			return "", "is not one quoted string of RFC 8941"
		}
	} else if strings.ContainsAny(line, `" `) {
		return "", "has a space or a quote in it, and is not quoted"
	}
	return key, Text(key)
}

// Text returns "" or the reason why a text is no key: it is empty, too long, or not printable
// ASCII.
func Text(key string) (invalid string) {
	switch {
	case key == "":
		return "is empty"
	case len(key) > maxHeader:
		return fmt.Sprintf("is longer than %d bytes", maxHeader)
	}
	for i := range len(key) {
		if key[i] < ' ' || key[i] > '~' {
			return "has a character in it that is not printable ASCII"
		}
	}
	return ""
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
