package signals

import (
	"crypto/sha256"
	"encoding/hex"
	"hash/maphash"
	"strconv"
	"strings"
	"sync/atomic"
)

// Redact is the default redactor of keys and owners: the first eight bytes of the SHA-256 sum, in
// hexadecimal digits.
func Redact(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:8])
}

// A Redactor redacts keys and owners by a function. It may be used concurrently.
type Redactor struct {
	redact func(string) string
	seed   maphash.Seed
	latest [64]atomic.Pointer[redaction] // an acquire, a run and a release show the same key
}

// A redaction is a key and its redacted form.
type redaction struct{ key, shown string }

// NewRedactor returns a Redactor by the function, which is called concurrently.
func NewRedactor(redact func(string) string) *Redactor {
	return &Redactor{redact: redact, seed: maphash.MakeSeed()}
}

// Secret returns the redacted form of a secret. It is "" if the function leaves it out, or panics.
func (r *Redactor) Secret(secret string) (shown string) {
	if secret == "" {
		return ""
	}
	defer func() {
		if recover() != nil {
			shown = ""
		}
	}()
	return Valid(r.redact(secret))
}

// Key is Secret for keys. It remembers the latest ones.
func (r *Redactor) Key(key string) string {
	at := &r.latest[maphash.String(r.seed, key)%uint64(len(r.latest))]
	if known := at.Load(); known != nil && known.key == key {
		return known.shown
	}
	known := &redaction{key: key, shown: r.Secret(key)}
	at.Store(known)
	return known.shown
}

// Scrub returns a foreign text, cut short and without the secrets in it.
func (r *Redactor) Scrub(text string, secrets ...string) string {
	const longest = 300
	for _, secret := range secrets {
		if secret == "" {
			continue
		}
		quoted := strconv.Quote(secret)
		for _, form := range []string{secret, quoted[1 : len(quoted)-1]} {
			if strings.Contains(text, form) {
				text = strings.ReplaceAll(text, form, r.Secret(secret))
			}
		}
	}
	if text = Valid(text); len(text) > longest {
		text = strings.ToValidUTF8(text[:longest], "") + "…"
	}
	return text
}

// Valid returns text as UTF-8. An exporter drops a whole batch of spans that has other text in it.
func Valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }
