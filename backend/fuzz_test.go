package backend_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/backend/redlock"
	"github.com/seed-1795987d/onerun/backend/reentrant"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// longestLabel is how much of a label is shown to others.
const longestLabel = 512

// A source is random input from which a test takes what it needs. It never ends: behind the input
// there are zeros.
type source struct{ rest []byte }

func (s *source) next() byte {
	if len(s.rest) == 0 {
		return 0
	}
	b := s.rest[0]
	s.rest = s.rest[1:]
	return b
}

func (s *source) below(n int) int { return int(s.next()) % n }

// text returns some bytes as they come.
func (s *source) text() string {
	n := min(s.below(40), len(s.rest))
	text := string(s.rest[:n])
	s.rest = s.rest[n:]
	return text
}

// notAKey are bytes that no key has, in any of the stores.
var notAKey = strings.NewReplacer("\x00", "_", "{", "_", "}", "_")

func (s *source) key() string { return cmp.Or(notAKey.Replace(s.text()), "key") }

// id returns an ID. IDs are Guards': they are not empty, and have no white space.
func (s *source) id() string {
	return cmp.Or(strings.Map(func(c rune) rune {
		if c <= ' ' {
			return '_'
		}
		return c
	}, strings.ToValidUTF8(s.text(), "?")), "id")
}

// FuzzTogether has a joint script and the lone ones do the same, and compares what they answer and
// leave, whatever bytes keys, IDs, owners, labels and records are made of: what belongs to one
// call must never get into another one.
func FuzzTogether(f *testing.F) {
	f.Add([]byte(""))
	f.Add([]byte("\x03a\nb\x03a b\x021\n\x02 2\x05\nlab\n\x04H1\n2\x03\x00\x01\x02\x06record\x05a\x00b\nc\x07\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09"))
	f.Add([]byte(strings.Repeat("\x051,2 3\x03\xff\xfe\xfd\x02KD\x041 2 ", 10)))
	f.Add([]byte("\x01k\x01k\x01k\x01i\x01i\x01j\x010\x020 \x03-1\n\x01\x00\x01\x01\x02\x02\x03\x03\x01\x01\x00\x00\x01\x01"))
	server := redistest.Start(f)
	all := map[string]*twins{}
	for name, open := range backends {
		all[name] = newTwins(f, name, open, func(db int) *redis.Client {
			return server.Client(f, func(o *redis.Options) { o.DB = 2*len(all) + db })
		})
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		for _, w := range all {
			w.t = t
			w.follow(&source{input})
		}
	})
}

// follow compares a few batches that the input describes.
func (w *twins) follow(from *source) {
	w.keys = []string{from.key(), from.key(), from.key()}
	w.cleared = from.below(2)
	w.clear()
	ids, owners := []string{from.id(), from.id(), from.id()}, []string{from.text(), cmp.Or(from.text(), "owner")}
	labels, records := []string{from.text(), from.text(), ""}, []string{from.text(), from.text(), ""}
	for range 1 + from.below(3) {
		var ops []op
		like := map[string]driver.Claim{} // claims for one key are alike but for their IDs
		for range 1 + from.below(6) {
			key, n := w.keys[from.below(3)], from.below(3)
			c, ok := like[key]
			if !ok {
				c = driver.Claim{Key: key, TTL: time.Hour, Label: labels[from.below(3)], Fences: driver.FenceRequest{Reserve: 64 * from.below(2)}}
				like[key] = c
			}
			c.ID, c.Owner = ids[n], owners[n%2]
			ops = append(ops, op{claim: c})
		}
		released := map[string]bool{} // once in a batch
		for range from.below(6) {
			key, n := w.keys[from.below(3)], from.below(3)
			o := op{release: true, claim: driver.Claim{Key: key, ID: ids[n], Owner: owners[n%2], TTL: time.Hour, Label: labels[from.below(3)]}}
			if kind := from.below(3); kind > 0 {
				o.after = driver.After{Keep: 3 * time.Hour, Done: kind == 2, Record: []byte(records[from.below(3)])}
			}
			if name := key + "\x00" + o.claim.ID; !released[name] {
				released[name] = true
				ops = append(ops, o)
			}
		}
		w.compare(ops)
	}
}

// FuzzLeft looks for what a run leaves where others find it: its label while it has the key, and
// its record and label when it is done, byte for byte, in every store.
func FuzzLeft(f *testing.F) {
	f.Add("key", "web-1", "web-2", []byte("record"))
	f.Add("a key\nwith more than a line", "1\n2\n", " 5\n", []byte("\x00\xff\n 3\nD"))
	f.Add("\xff\xfe", strings.Repeat("long", 200), strings.Repeat("\n", 600), []byte(strings.Repeat("\r\n", 5000)))
	f.Add("k", "", "", []byte{})
	f.Add("1 2 3", "H1 2 3 ", "D,9 ", []byte("9,9 9"))
	servers := redistest.StartN(f, 3)
	var nodes []guard.Locker
	for _, s := range servers {
		nodes = append(nodes, single.New(s.Client(f)))
	}
	stores := map[string]guard.Locker{
		"memory": memory.New(), "redlock": redlock.New(nodes),
		"single":    single.New(servers[0].Client(f, func(o *redis.Options) { o.DB = 1 })),
		"reentrant": reentrant.New(servers[0].Client(f, func(o *redis.Options) { o.DB = 2 })),
	}
	// what a quorum has sent to a node that it did not wait for may arrive while the next input is
	// tried: each has keys of its own
	inputs := 0
	f.Fuzz(func(t *testing.T, key, label, left string, record []byte) {
		inputs++
		key = fmt.Sprint(inputs) + notAKey.Replace(key)
		if driver.CheckKey(key) != nil {
			return
		}
		for name, store := range stores {
			findLeft(t, name, store, key, label, left, record)
		}
	})
}

func findLeft(t *testing.T, name string, store guard.Locker, key, label, left string, record []byte) {
	t.Helper()
	mine := driver.Claim{Key: key, ID: "MINE", Owner: "MINE", TTL: time.Minute, Label: label}
	other := driver.Claim{Key: key, ID: "OTHER", Owner: "OTHER", TTL: time.Minute, Label: "other"}
	grant, err := store.TryAcquire(t.Context(), mine)
	require.NoError(t, err, name)
	require.Equal(t, driver.Granted, grant.State, name)

	grant, err = store.TryAcquire(t.Context(), other)
	require.NoError(t, err, name)
	require.Equal(t, driver.Busy, grant.State, name)
	require.Equal(t, shown(label), shown(grant.Label), name)

	mine.Label = left
	held, err := store.Release(t.Context(), mine, driver.After{Keep: time.Minute, Done: true, Record: record})
	require.NoError(t, err, name)
	require.True(t, held, name)
	grant, err = store.TryAcquire(t.Context(), other)
	require.NoError(t, err, name)
	require.Equal(t, driver.Done, grant.State, name)
	require.Equal(t, string(record), string(grant.Record), name)
	require.Equal(t, shown(left), shown(grant.Label), name)
}

// shown returns what is certain to be shown of a label.
func shown(label string) string { return label[:min(len(label), longestLabel)] }
