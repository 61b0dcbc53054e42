package web

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
)

// tokens stand for keys in links, if keys are redacted. Only their maker can read them.
type tokens struct{ aead cipher.AEAD }

func newTokens() *tokens {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // it never fails
	block, _ := aes.NewCipher(secret)
	aead, _ := cipher.NewGCMWithRandomNonce(block)
	return &tokens{aead}
}

func (t *tokens) of(key string) string {
	return base64.RawURLEncoding.EncodeToString(t.aead.Seal(nil, nil, []byte(key), nil))
}

func (t *tokens) key(token string) (string, error) {
	sealed, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return "", errLink
	}
	key, err := t.aead.Open(nil, nil, sealed, nil)
	if err != nil {
		return "", errLink
	}
	return string(key), nil
}

// link returns the text for a key in a link.
func (h *handler) link(key string) string {
	if h.tokens == nil {
		return key
	}
	return h.tokens.of(key)
}

// linked returns the key of which this is the text in a link.
func (h *handler) linked(link string) (string, error) {
	if h.tokens == nil {
		return link, nil
	}
	return h.tokens.key(link)
}

// shown returns a key as it is shown.
func (h *handler) shown(key string) string {
	if h.show == nil {
		return key
	}
	return h.show(key)
}

// reason returns a text of a record of a job as it is shown. It may be an error that names a key.
func (h *handler) reason(text string) string {
	if h.show == nil || text == "" {
		return text
	}
	return "not shown, because it may name a key"
}
