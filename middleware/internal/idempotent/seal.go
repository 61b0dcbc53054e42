package idempotent

import (
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"fmt"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// maxKeyID is the longest ID of an idempotency.EncryptionKey in bytes.
const maxKeyID = 64

// A sealer encrypts records with AES-GCM:
//
//	"or", version 2                 3 bytes
//	ID of the key                   text, see record.go
//	nonce, ciphertext, tag          the rest
//
// It also authenticates all bytes before the nonce, and the key in the store. A record that was
// copied to another key is therefore refused. A nil sealer leaves records as they are.
type sealer struct {
	first string
	keys  map[string]cipher.AEAD
}

// newSealer returns a sealer that encrypts with the first key and decrypts with all. It is nil if
// there are no keys.
func newSealer(keys []idempotency.EncryptionKey) (*sealer, error) {
	if len(keys) == 0 {
		return nil, nil //nolint:nilnil // a nil sealer leaves records as they are
	}
	s := &sealer{keys: map[string]cipher.AEAD{}}
	for i, k := range keys {
		refuse := func(reason string) error {
			return &guard.SettingError{Setting: "WithEncryption", Value: fmt.Sprintf("key %d", i+1), Reason: reason}
		}
		if k.ID == "" || len(k.ID) > maxKeyID {
			return nil, refuse("must have an ID of 1 to 64 bytes")
		}
		if s.keys[k.ID] != nil {
			return nil, refuse("has the ID of another one")
		}
		block, err := aes.NewCipher(k.Secret)
		if err != nil {
			return nil, refuse("must have a secret of 16, 24 or 32 bytes")
		}
		if s.keys[k.ID], err = cipher.NewGCMWithRandomNonce(block); err != nil {
			return nil, refuse(err.Error())
		}
	}
	s.first = keys[0].ID
	return s, nil
}

// seal returns what to store for a record under a key of the store.
func (s *sealer) seal(plain []byte, stored string) []byte {
	if s == nil {
		return plain
	}
	head := AppendText(append([]byte(magic), versionSealed), s.first)
	aead := s.keys[s.first]
	b := make([]byte, len(head), len(head)+len(plain)+aead.Overhead())
	copy(b, head)
	return aead.Seal(b, nil, plain, bindTo(head, stored))
}

// open returns the record out of what was stored. An error is an
// *idempotency.RecordError.
func (s *sealer) open(sealed []byte, stored string) ([]byte, error) {
	isSealed := len(sealed) > len(magic) && string(sealed[:len(magic)]) == magic && sealed[len(magic)] == versionSealed
	switch {
	case s == nil && isSealed:
		return nil, Unreadable("it is encrypted, and there is no key", nil)
	case s == nil:
		return sealed, nil
	case !isSealed:
		return nil, Unreadable("it is not encrypted, as it must be", nil)
	}
	scan := Scanner{rest: sealed[len(magic)+1:]}
	aead := s.keys[string(scan.Text(maxKeyID))]
	if scan.err != nil || aead == nil {
		return nil, Unreadable("it is encrypted with a key that is unknown here", scan.err)
	}
	head := sealed[:len(sealed)-len(scan.rest)]
	plain, err := aead.Open(nil, nil, scan.rest, bindTo(head, stored))
	if err != nil {
		return nil, Unreadable("it was changed, or moved from another key", errSeal)
	}
	return plain, nil
}

var errSeal = errors.New("message authentication failed")

func bindTo(head []byte, stored string) []byte {
	return append(head[:len(head):len(head)], stored...)
}
