package tracing

import (
	"crypto/sha256"
	"encoding/hex"
	"hash/maphash"
	"strconv"
	"strings"
	"sync/atomic"
)

// Redact is the default redactor of keys and owners. It returns the first eight bytes of the
// SHA-256 sum, in hexadecimal digits. Equal keys have equal results. A reader that can guess a key
// can check the guess: if that is too much, use WithRedactor.
func Redact(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:8])
}

// redacted returns the redacted form of a secret. It is "" if the redactor leaves it out, or
// panics.
func (t *telemetry) redacted(secret string) (shown string) {
	if secret == "" {
		return ""
	}
	defer func() {
		if recover() != nil {
			shown = ""
		}
	}()
	return valid(t.set.redact(secret))
}

// valid returns text as UTF-8. An exporter drops a whole batch of spans that has other text in it.
func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// A redaction is a key and its redacted form.
type redaction struct{ key, shown string }

// redactions caches the latest redacted keys: an acquire, a run and a release show the same one.
type redactions struct {
	seed maphash.Seed
	of   [64]atomic.Pointer[redaction]
}

// redactedKey is redacted for keys.
func (t *telemetry) redactedKey(key string) string {
	at := &t.keys.of[maphash.String(t.keys.seed, key)%uint64(len(t.keys.of))]
	if r := at.Load(); r != nil && r.key == key {
		return r.shown
	}
	r := &redaction{key: key, shown: t.redacted(key)}
	at.Store(r)
	return r.shown
}

// scrubbed returns a foreign text, cut short and without the secrets in it.
func (t *telemetry) scrubbed(text string, secrets ...string) string {
	const longest = 300
	for _, secret := range secrets {
		if secret == "" {
			continue
		}
		quoted := strconv.Quote(secret)
		for _, form := range []string{secret, quoted[1 : len(quoted)-1]} {
			if strings.Contains(text, form) {
				text = strings.ReplaceAll(text, form, t.redacted(secret))
			}
		}
	}
	if text = valid(text); len(text) > longest {
		text = strings.ToValidUTF8(text[:longest], "") + "…"
	}
	return text
}
