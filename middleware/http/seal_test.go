package guardhttp_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// sealKey returns a key to encrypt with.
func sealKey(id string) idempotency.EncryptionKey {
	return idempotency.EncryptionKey{ID: id, Secret: []byte(strings.Repeat(id, 32)[:32])}
}

func sealWith(ids ...string) guardhttp.Option {
	keys := make([]idempotency.EncryptionKey, len(ids))
	for i, id := range ids {
		keys[i] = sealKey(id)
	}
	return idempotency.WithEncryption(keys...)
}

// No part of an answer is readable in the store, and the answer is replayed nevertheless.
func TestSeal_hidesTheAnswer(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int{"AES-128": 16, "AES-192": 24, "AES-256": 32} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := contentRedis(t)
			secret := []byte(strings.Repeat("s", size))
			site := store.site(t, contentSetup{opts: []guardhttp.Option{idempotency.WithEncryption(idempotency.EncryptionKey{ID: "key-1", Secret: secret}),
				guardhttp.WithObserver(guardhttp.Observer{})}, handler: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "/PLAIN/location")
				w.WriteHeader(http.StatusCreated)
				_, _ = w.Write([]byte(strings.Repeat("PLAIN answer ", 100)))
			}})
			first := site.post(t, "PLAIN-key", "PLAIN body", contentHeader("X-Tenant", "PLAIN-scope"))
			all := recordAll(t, store.rdb)
			require.NotContains(t, all, "PLAIN")
			require.NotContains(t, all, "ocation")
			require.Contains(t, all, "key-1", "which key it was can be seen")
			site.post(t, "PLAIN-key", "PLAIN body", contentHeader("X-Tenant", "PLAIN-scope")).requireReplayOf(t, first)
			site.post(t, "PLAIN-key", "other", contentHeader("X-Tenant", "PLAIN-scope")).requireRefused(t, 422, idempotency.Mismatch)
			site.requireRan(t, 1)
		})
	}
}

// The same answer is not the same in the store twice.
func TestSeal_differsEachTime(t *testing.T) {
	t.Parallel()
	s := recordMade(t, sealWith("a"))
	seen := map[string]bool{}
	for range 20 {
		require.NoError(t, s.rdb.Del(t.Context(), s.key).Err())
		s.post(t, "k", "body")
		_, _, record := s.contentStore.record(t)
		require.False(t, seen[record])
		seen[record] = true
		require.Len(t, record, len(s.record))
	}
}

// Row 38, encrypted: one bit of a record is another, or it ends early.
func TestSeal_corrupt(t *testing.T) {
	t.Parallel()
	s := recordMade(t, sealWith("a"))
	for i := range len(s.record) {
		corrupt := []byte(s.record)
		corrupt[i] ^= 0x01
		s.requireUnreadable(t, string(corrupt), fmt.Sprint("byte ", i))
		s.requireUnreadable(t, s.record[:i], fmt.Sprint("length ", i))
	}
	s.requireUnreadable(t, s.record+"\x00", "longer")
	s.put(t, s.record)
	s.post(t, "k", "body").requireReplayOf(t, s.first)
}

// A record that was copied from another key, or another tenant's, is not believed.
func TestSeal_movedFromAnotherKey(t *testing.T) {
	t.Parallel()
	s := recordMade(t, sealWith("a"))
	for name, edits := range map[string][]contentEdit{
		"key":    {contentHeader("Idempotency-Key", "k2")},
		"tenant": {contentHeader("X-Tenant", "other")},
	} {
		first := s.post(t, "k", "body", edits...)
		require.False(t, first.replayed(), name)
		for key, value := range s.leases(t) {
			if key == s.key {
				continue
			}
			err := s.rdb.Set(t.Context(), key, s.head+s.record, redis.KeepTTL).Err()
			require.NoError(t, err)
			a := s.post(t, "k", "body", edits...)
			a.requireRefused(t, http.StatusConflict, idempotency.NotReplayable)
			var unreadable *idempotency.RecordError
			require.ErrorAs(t, s.outcome(t).Err, &unreadable)
			require.Contains(t, unreadable.Reason, "moved from another key")
			require.NoError(t, s.rdb.Set(t.Context(), key, value, redis.KeepTTL).Err())
			s.post(t, "k", "body", edits...).requireReplayOf(t, first)
			require.NoError(t, s.rdb.Del(t.Context(), key).Err())
		}
	}
	s.requireRan(t, 3)
}

// Encryption that is turned on, or off, or has other keys, does not run anything a second time.
func TestSeal_otherKeys(t *testing.T) {
	t.Parallel()
	const (
		replayed = ""
		noKey    = "it is encrypted, and there is no key"
		unknown  = "it is encrypted with a key that is unknown here"
		plain    = "it is not encrypted, as it must be"
		changed  = "it was changed, or moved from another key"
	)
	for name, c := range map[string]struct {
		written, read guardhttp.Option
		reason        string
	}{
		"the same":               {sealWith("a"), sealWith("a"), replayed},
		"turned on":              {idempotency.WithRerun(), sealWith("a"), plain},
		"turned off":             {sealWith("a"), idempotency.WithRerun(), noKey},
		"another key":            {sealWith("a"), sealWith("b"), unknown},
		"an old key behind":      {sealWith("a"), sealWith("b", "a"), replayed},
		"a new key behind":       {sealWith("a"), sealWith("a", "b"), replayed},
		"new first, old unknown": {sealWith("b", "a"), sealWith("a"), unknown},
		"another secret of one name": {sealWith("a"),
			idempotency.WithEncryption(idempotency.EncryptionKey{ID: "a", Secret: []byte(strings.Repeat("x", 32))}), changed},
		"one secret under another name": {sealWith("a"), idempotency.WithEncryption(idempotency.EncryptionKey{ID: "b", Secret: sealKey("a").Secret}), unknown},
	} {
		t.Run(name, func(t *testing.T) {
			s := recordMade(t, c.written)
			reader := s.site(t, contentSetup{handler: recordHandler, opts: []guardhttp.Option{c.read}})
			a := reader.post(t, "k", "body")
			reader.requireRan(t, 0)
			if c.reason == replayed {
				a.requireReplayOf(t, s.first)
				return
			}
			a.requireRefused(t, http.StatusConflict, idempotency.NotReplayable)
			var unreadable *idempotency.RecordError
			require.ErrorAs(t, reader.outcome(t).Err, &unreadable)
			require.Equal(t, c.reason, unreadable.Reason)
			s.post(t, "k", "body").requireReplayOf(t, s.first) // its writer can still read it
		})
	}
}

// As WithEncryption says: the new key behind the old, then before it, then alone.
func TestSeal_rotation(t *testing.T) {
	t.Parallel()
	store := contentRedis(t)
	site := func(ids ...string) *contentSite {
		return store.site(t, contentSetup{handler: recordHandler, opts: []guardhttp.Option{sealWith(ids...)}})
	}
	phases := []*contentSite{site("old"), site("old", "new"), site("new", "old"), site("new")}
	writes := []string{"old", "old", "new", "new"}
	for i := range len(phases) - 1 { // two phases live side by side
		for _, pair := range [][2]int{{i, i + 1}, {i + 1, i}} {
			require.NoError(t, store.rdb.FlushAll(t.Context()).Err())
			first := phases[pair[0]].post(t, "k", "body")
			require.False(t, first.replayed())
			_, _, record := store.record(t)
			require.True(t, strings.HasPrefix(record, "or\x02\x03"+writes[pair[0]]), "%q", record)
			phases[pair[1]].post(t, "k", "body").requireReplayOf(t, first)
		}
	}
}

// A record without an answer is encrypted as well: it contains the fingerprint, and could be
// forged.
func TestSeal_tombstones(t *testing.T) {
	t.Parallel()
	for name, opt := range map[string]guardhttp.Option{"too large": idempotency.WithMaxAnswer(1), "reject": idempotency.WithMode(idempotency.Reject)} {
		t.Run(name, func(t *testing.T) {
			s := recordMade(t, sealWith("a"), opt)
			require.Equal(t, "or\x02", s.record[:3])
			plain := recordMade(t, opt)
			require.Equal(t, "or\x01", plain.record[:3])
			s.requireUnreadable(t, plain.record, "a forged one")
			s.put(t, s.record)
			require.Equal(t, http.StatusConflict, s.post(t, "k", "body").status)
			require.NoError(t, s.outcome(t).Err)
			s.requireRan(t, 1)
		})
	}
}
