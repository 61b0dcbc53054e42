package guardhttp

import (
	"net/http"

	"github.com/seed-1795987d/onerun/middleware/idempotency"
	"github.com/seed-1795987d/onerun/middleware/internal/keys"
)

const keyHeader = "Idempotency-Key"

// IdempotencyKey is the KeyFunc of the Idempotency-Key header. It takes the quoted string that the
// draft asks for (a String of RFC 8941, whose parameters are ignored). It also takes the raw text
// that most clients send: abc and "abc" are the same key. A key has 1 to 255 bytes of printable
// ASCII, and a raw one has no spaces and no quotes. An empty key, another character or a second
// line is an *idempotency.KeyError.
func IdempotencyKey(r *http.Request) (string, error) {
	line, err := oneLine(r.Header, keyHeader, "header "+keyHeader)
	if err != nil {
		return "", err
	}
	return parseKey(line)
}

// parseKey parses the value of an Idempotency-Key header.
func parseKey(line string) (string, error) {
	key, invalid := keys.Header(line)
	return key, invalidKey("header "+keyHeader, invalid)
}

// checkText returns an *idempotency.KeyError for a key that is empty, too long, or not printable
// ASCII.
func checkText(key, from string) error { return invalidKey(from, keys.Text(key)) }

// invalidKey returns an *idempotency.KeyError, or nil if there is no reason.
func invalidKey(from, reason string) error {
	if reason == "" {
		return nil
	}
	return &idempotency.KeyError{From: from, Reason: reason}
}
