package tracing

import (
	"crypto/sha256"
	"encoding/hex"
	"hash/maphash"
	"strconv"
	"strings"
	"sync/atomic"
)

// Redact is the default redactor of keys and owners: the first eight bytes of the SHA-256 sum, in
// hex. It tells one from another and joins what belongs together. Who can guess the key can check
// the guess: where that is too much, set another one with WithRedactor.
func Redact(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:8])
}

// redacted returns what stands for a secret, or "" if nothing does. A redactor that panics shows
// nothing.
func (t *telemetry) redacted(secret string) (shown string) {
	if secret == "" {
		return ""
	}
	defer func() {
		if recover() != nil {
			shown = ""
		}
	}()
	return t.set.redact(secret)
}

// A redaction is a key and what stands for it.
type redaction struct{ key, shown string }

// redactions remembers what stands for the keys of late: an acquire, a run and a release show the
// same one.
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

// scrubbed returns text, which comes from elsewhere, without the secrets in it, and cut short.
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
	if len(text) > longest {
		text = strings.ToValidUTF8(text[:longest], "") + "…"
	}
	return text
}
