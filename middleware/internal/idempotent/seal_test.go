package idempotent_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

func secretOf(id string) []byte { return []byte(strings.Repeat(id, 32)[:32]) }

// encryptWith returns WithEncryption with keys of these IDs.
func encryptWith(ids ...string) idempotency.Option {
	keys := make([]idempotency.EncryptionKey, len(ids))
	for i, id := range ids {
		keys[i] = idempotency.EncryptionKey{ID: id, Secret: secretOf(id)}
	}
	return idempotency.WithEncryption(keys...)
}

// A forging store answers with a record of the test's.
type forging struct {
	guard.Locker
	record string
}

func (f *forging) TryAcquire(context.Context, driver.Claim) (driver.Answer, error) {
	return driver.Answer{State: driver.Done, Record: []byte(f.record)}, nil
}

// recorded returns the record that a run on a site of these options leaves.
func recorded(t *testing.T, key string, opts ...idempotency.Option) string {
	t.Helper()
	store := newStore()
	s := newSite(t, store, opts...)
	require.Equal(t, idempotency.Ran, s.send(t.Context(), request{key: key}).Result)
	var done *guard.DoneError
	plain, err := guard.New(store, guard.WithNamespace("test"))
	require.NoError(t, err)
	require.ErrorAs(t, plain.Do(t.Context(), s.core.Stored("", key, "test"), func(context.Context) error { return nil }), &done)
	return string(done.Record)
}

// requireReason sends a call to a site whose store has a record, and requires that it is replayed,
// or cannot be read for a reason.
func requireReason(t *testing.T, record, reason string, opts ...idempotency.Option) {
	t.Helper()
	s := newSite(t, &forging{newStore(), record}, opts...)
	got := s.send(t.Context(), request{key: "k"})
	require.Zero(t, s.runs)
	if reason == "" {
		require.Equal(t, idempotency.Replayed, got.Result)
		require.Equal(t, "answer", got.answer)
		return
	}
	require.Equal(t, idempotency.NotReplayable, got.Result)
	var unreadable *idempotency.RecordError
	require.ErrorAs(t, got.Err, &unreadable)
	require.Contains(t, unreadable.Reason, reason)
	require.False(t, guard.Ran(got.Err))
}

// Encryption that is turned on, or off, or has other keys, does not run anything a second time.
// Rotation reads all records: the new key behind the old, then before it, then alone.
func TestSeal_keys(t *testing.T) {
	t.Parallel()
	const (
		noKey   = "it is encrypted, and there is no key"
		unknown = "it is encrypted with a key that is unknown here"
		plain   = "it is not encrypted, as it must be"
		changed = "it was changed, or moved from another key"
	)
	none := idempotency.WithMaxAnswer(100)
	for name, c := range map[string]struct {
		written, read idempotency.Option
		reason        string
	}{
		"the same":                   {encryptWith("a"), encryptWith("a"), ""},
		"turned on":                  {none, encryptWith("a"), plain},
		"turned off":                 {encryptWith("a"), none, noKey},
		"another key":                {encryptWith("a"), encryptWith("b"), unknown},
		"an old key behind":          {encryptWith("a"), encryptWith("b", "a"), ""},
		"a new key behind":           {encryptWith("a"), encryptWith("a", "b"), ""},
		"new first, old unknown":     {encryptWith("b", "a"), encryptWith("a"), unknown},
		"the new one alone":          {encryptWith("b", "a"), encryptWith("b"), ""},
		"another secret of one name": {encryptWith("a"), idempotency.WithEncryption(idempotency.EncryptionKey{ID: "a", Secret: secretOf("x")}), changed},
		"one secret, another name":   {encryptWith("a"), idempotency.WithEncryption(idempotency.EncryptionKey{ID: "b", Secret: secretOf("a")}), unknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireReason(t, recorded(t, "k", c.written), c.reason, c.read)
		})
	}
}

// someReason begins all reasons.
const someReason = "it"

// A record that was changed in a bit, cut, extended, or copied from another key is not believed.
func TestSeal_changedRecords(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]idempotency.Option{"plain": nil, "encrypted": {encryptWith("a")}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			record := recorded(t, "k", opts...)
			requireReason(t, record, "", opts...)
			for i := range len(record) {
				changed := []byte(record)
				changed[i] ^= 0x01
				requireReason(t, string(changed), someReason, opts...)
				requireReason(t, record[:i], someReason, opts...)
			}
			requireReason(t, record+"\x00", someReason, opts...)
		})
	}
	requireReason(t, recorded(t, "other", encryptWith("a")), "moved from another key", encryptWith("a"))
}

// The same answer is not the same in the store twice, and cannot be read there.
func TestSeal_hidesRecords(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 20 {
		record := recorded(t, "k", encryptWith("key-1"))
		require.Contains(t, record, "key-1")
		require.NotContains(t, record, "answer")
		require.False(t, seen[record])
		seen[record] = true
	}
	require.Contains(t, recorded(t, "k"), "answer")
}

// A record that cannot be read is none of another mode either: Reject refuses, and in shadow mode
// the call runs. The record is left as it is.
func TestSeal_unreadableInOtherModes(t *testing.T) {
	t.Parallel()
	requireReason(t, "nonsense", someReason, idempotency.WithMode(idempotency.Reject))
	s := newSite(t, &forging{newStore(), "nonsense"}, idempotency.WithMode(idempotency.Reject), idempotency.WithShadow())
	got := s.send(t.Context(), request{key: "k"})
	require.Equal(t, idempotency.NotReplayable, got.Result)
	require.ErrorAs(t, got.Err, new(*idempotency.RecordError))
	require.Equal(t, 1, s.runs)
}
