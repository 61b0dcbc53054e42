package guardhttp

import (
	"fmt"
	"net/http"
	"strings"
)

const (
	keyHeader = "Idempotency-Key"
	// maxHeaderKey is the longest key of a header in bytes: what Stripe and others take.
	maxHeaderKey = 255
)

// IdempotencyKey is the KeyFunc of the Idempotency-Key header. It takes the quoted string that the
// draft asks for (a String of RFC 8941, whose parameters are ignored), and the raw text that most
// clients send: abc and "abc" are the same key. A key has 1 to 255 bytes of printable ASCII, a raw
// one no spaces and no quotes; an empty one, another character or a second line is a *KeyError.
func IdempotencyKey(r *http.Request) (string, error) {
	line, err := oneLine(r.Header, keyHeader, "header "+keyHeader)
	if err != nil {
		return "", err
	}
	return parseKey(line)
}

// parseKey parses the value of an Idempotency-Key header.
func parseKey(line string) (string, error) {
	const from = "header " + keyHeader
	line = strings.Trim(line, " ") // as RFC 8941, section 4.2 says
	key := line
	if strings.HasPrefix(line, `"`) {
		var rest string
		var ok bool
		if key, rest, ok = quoted(line); !ok || !parameters(rest) {
			return "", &KeyError{From: from, Reason: "is not one quoted string of RFC 8941"}
		}
	} else if strings.ContainsAny(line, `" `) {
		return "", &KeyError{From: from, Reason: "has a space or a quote in it, and is not quoted"}
	}
	return key, checkText(key, from)
}

// checkText returns a *KeyError for a key that is empty, too long, or not printable ASCII.
func checkText(key, from string) error {
	switch {
	case key == "":
		return &KeyError{From: from, Reason: "is empty"}
	case len(key) > maxHeaderKey:
		return &KeyError{From: from, Reason: fmt.Sprintf("is longer than %d bytes", maxHeaderKey)}
	}
	for i := range len(key) {
		if key[i] < ' ' || key[i] > '~' {
			return &KeyError{From: from, Reason: "has a character in it that is not printable ASCII"}
		}
	}
	return nil
}

// quoted returns what the quoted string at the beginning of s stands for, and what follows it (RFC
// 8941, section 4.2.5).
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

// parameters reports whether s is nothing, or the parameters of an Item (RFC 8941, section
// 4.2.3.2), which mean nothing here.
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

// span returns what s begins with of these characters.
func span(s, of string) string { return s[:len(s)-len(strings.TrimLeft(s, of))] }
