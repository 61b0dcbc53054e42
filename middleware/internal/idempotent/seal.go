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

// A sealer encrypts records with AES-GCM. What it stores is a record, too: its head has the ID of
// the key, and its body is the nonce, the ciphertext and the tag.
//
// It also authenticates the ID, and the key in the store. A record that was copied to another key
// is therefore refused.
type sealer struct {
	first string
	keys  map[string]cipher.AEAD
}

// newSealer returns a sealer that encrypts with the first key and decrypts with all. It is nil if
// there are no keys.
func newSealer(keys []idempotency.EncryptionKey) (*sealer, error) {
	if len(keys) == 0 {
		return nil, nil //nolint:nilnil // records are not encrypted
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
	r := Record{Version: recordVersion, Key: s.first}
	return r.encode(s.keys[s.first].Seal(nil, nil, plain, bindTo(s.first, stored)))
}

// open returns the record and the body that are in those that were stored under a key of the store.
// An error is an *idempotency.RecordError.
func (s *sealer) open(r *Record, body []byte, stored string) (*Record, []byte, error) {
	if r.Key == "" {
		return nil, nil, Unreadable("it is not encrypted, as it must be", nil)
	}
	aead := s.keys[r.Key]
	if aead == nil {
		return nil, nil, Unreadable("it is encrypted with a key that is unknown here", nil)
	}
	plain, err := aead.Open(nil, nil, body, bindTo(r.Key, stored))
	if err != nil {
		return nil, nil, Unreadable("it was changed, or moved from another key", errSeal)
	}
	return decode(plain)
}

var errSeal = errors.New("message authentication failed")

// bindTo returns what is authenticated with a record: the ID of its key, whose length the first
// byte says, and the key in the store.
func bindTo(id, stored string) []byte { return append([]byte{byte(len(id))}, id+stored...) }
