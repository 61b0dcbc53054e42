package backend_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/internal/redisstore"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// counterKeys name the fence counter of a key.
var counterKeys = map[string]func(key string) string{
	"single":    func(key string) string { _, counter := redisstore.LeaseKeys(key); return counter },
	"reentrant": redisstore.FenceKeyBeside,
}

// twins are two databases that are asked for the same: one for many things at once, the other for
// one after the other.
type twins struct {
	t       testing.TB
	rng     *rand.Rand
	keys    []string
	backend string
	many    *batcher
	one     guard.Locker
	dbs     [2]*redis.Client
	fences  [2]map[string]uint64 // the last one of each key, with those that it reserved
	ids     map[string]bool      // of releases of the batch, with their keys
	claims  map[string]driver.Claim

	compared int // rounds
	cleared  int
}

const twinKeys, twinIDs = 5, 3

// TestTogether_isTheSameAsOneByOne lets a joint script and the lone ones do the same at random.
// Claims come first, as they do in joint scripts. Those for one key are alike but for their IDs,
// and a claim is released once, as what is quick is done before what is not.
func TestTogether_isTheSameAsOneByOne(t *testing.T) {
	t.Parallel()
	for name, open := range backends {
		t.Run(name, func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			server := redistest.Start(t)
			on := func(db int) *redis.Client { return server.Client(t, func(o *redis.Options) { o.DB = db }) }
			w := newTwins(t, name, open, on)
			w.rng = rand.New(rand.NewPCG(seed, 1))
			for i := range twinKeys {
				w.keys = append(w.keys, fmt.Sprint("key", i))
			}
			for n := 0; w.compared < 60; n++ {
				if n%20 == 0 {
					w.clear() // fence counters that are ahead of the clock, too
				}
				w.round()
			}
		})
	}
}

// newTwins returns twins on two databases, to which on connects.
func newTwins(t testing.TB, backend string, open func(redis.UniversalClient) guard.Locker, on func(db int) *redis.Client) *twins {
	return &twins{
		t: t, backend: backend, many: batcherOn(on(0), open), one: open(on(1)),
		dbs: [2]*redis.Client{on(0), on(1)}, fences: [2]map[string]uint64{{}, {}},
	}
}

// round sends a batch, and the same ops by lone scripts. It compares the answers and the data.
func (w *twins) round() {
	w.disturb()
	var ops []op
	w.ids, w.claims = map[string]bool{}, map[string]driver.Claim{}
	for range 2 + w.rng.IntN(8) {
		ops = append(ops, w.claim())
	}
	for range w.rng.IntN(8) {
		if o := w.release(); !w.ids[o.claim.Key+o.claim.ID] {
			w.ids[o.claim.Key+o.claim.ID] = true
			ops = append(ops, o)
		}
	}
	w.compare(ops)
}

// compare sends the ops as a batch and one by one. It compares the answers and the data that is
// left behind.
func (w *twins) compare(ops []op) {
	got, sizes := w.many.send(w.t, ops...)
	if len(sizes) != 1 { // the machine has paused, and not all went out together
		w.clear()
		return
	}
	w.compared++
	for i, o := range ops {
		want := w.alone(o)
		require.Equal(w.t, w.plain(0, o, got[i]), w.plain(1, o, want), "%+v in %+v", o, ops)
	}
	for _, key := range w.keys {
		require.Equal(w.t, w.found(0, lockKeys[w.backend](key)), w.found(1, lockKeys[w.backend](key)), "after %+v", ops)
		for i, db := range w.dbs {
			text, last := db.Get(w.t.Context(), counterKeys[w.backend](key)).Val(), w.fences[i][key]
			if last == 0 || slices.Contains(brokenCounters, text) {
				continue
			}
			counter, err := strconv.ParseUint(text, 10, 64)
			require.NoError(w.t, err)
			require.GreaterOrEqual(w.t, counter, last, "database %d remembers the fences of %q", i, key)
		}
	}
}

// clear empties the databases. Every other time they keep fence counters: without them all fences
// are ahead of the clock for a while, and nothing goes the quick way.
func (w *twins) clear() {
	w.cleared++
	for i, db := range w.dbs {
		require.NoError(w.t, db.FlushDB(w.t.Context()).Err())
		w.fences[i] = map[string]uint64{}
		for _, key := range w.keys {
			if w.cleared%2 == 0 {
				longAgo(w.t, db, counterKeys[w.backend](key))
			}
		}
	}
}

func (w *twins) alone(o op) (a answer) {
	if o.release {
		a.held, a.err = w.one.Release(context.Background(), o.claim, o.after)
	} else {
		a.grant, a.err = w.one.TryAcquire(context.Background(), o.claim)
	}
	return a
}

// name returns a key, an ID and, of two, its owner.
func (w *twins) name() (key, id, owner string) {
	n := w.rng.IntN(twinIDs)
	return fmt.Sprint("key", w.rng.IntN(twinKeys)), fmt.Sprint("id", n), [...]string{"owner", "another"}[n%2]
}

func (w *twins) claim() op {
	key, id, owner := w.name()
	c, ok := w.claims[key]
	if !ok {
		c = driver.Claim{Key: key, TTL: time.Hour}
		if w.rng.IntN(4) == 0 {
			c.TTL, c.Label = 2*time.Hour, "web-1"
		}
		if w.rng.IntN(4) == 0 {
			c.Fences.Reserve = 64
		}
		if w.rng.IntN(4) == 0 {
			c.Fences.Hint = w.fences[0][key] + uint64(w.rng.IntN(1<<20))
		}
		w.claims[key] = c
	}
	c.ID, c.Owner = id, owner
	return op{claim: c}
}

func (w *twins) release() op {
	key, id, owner := w.name()
	o := op{claim: driver.Claim{Key: key, ID: id, Owner: owner, TTL: time.Hour, Label: "web-2"}, release: true}
	switch w.rng.IntN(6) {
	case 0:
		o.after = driver.After{Keep: 3 * time.Hour}
	case 1:
		o.after = driver.After{Keep: 3 * time.Hour, Done: true, Record: []byte("record")}
	case 2:
		o.after = driver.After{Keep: 3 * time.Hour, Done: true}
	}
	return o
}

// disturb takes keys away, or puts something there that is not ours.
func (w *twins) disturb() {
	name := fmt.Sprint("key", w.rng.IntN(twinKeys))
	key := lockKeys[w.backend](name)
	n, broken := w.rng.IntN(13), brokenCounters[w.rng.IntN(len(brokenCounters))]
	for i, db := range w.dbs {
		switch n {
		case 0, 1, 2:
			require.NoError(w.t, db.Del(w.t.Context(), key).Err())
		case 3:
			require.NoError(w.t, db.Del(w.t.Context(), key).Err())
			require.NoError(w.t, db.RPush(w.t.Context(), key, "somebody's").Err())
		case 4:
			require.NoError(w.t, db.Set(w.t.Context(), key, "somebody's", 5*time.Hour).Err())
		case 5:
			require.NoError(w.t, db.Del(w.t.Context(), key).Err())
			require.NoError(w.t, db.HSet(w.t.Context(), key, "mode", "reentrant", "somebody's:1", "1").Err())
		case 6:
			require.NoError(w.t, db.ScriptFlush(w.t.Context()).Err())
		case 7: // the clock has stepped back, by twelve days
			w.fences[i][name] = max(w.fences[0][name], w.fences[1][name], uint64(time.Now().Unix()<<20)) + 1<<40
			require.NoError(w.t, db.Set(w.t.Context(), counterKeys[w.backend](name), w.fences[i][name], 0).Err())
		case 8:
			require.NoError(w.t, db.Set(w.t.Context(), counterKeys[w.backend](name), broken, 0).Err())
		}
	}
}

// plain returns an answer as both databases must give it: without what depends on when it was
// asked. New fences must have grown.
func (w *twins) plain(db int, o op, a answer) string {
	if a.err != nil {
		return fmt.Sprint("error ", a.kind(w.t))
	}
	g := a.grant
	if !o.release && g.State == driver.Granted {
		last := w.fences[db][o.claim.Key]
		if g.Held {
			require.LessOrEqual(w.t, g.Fence, last)
		} else {
			require.Greater(w.t, g.Fence, last, "%+v in database %d", o, db)
			w.fences[db][o.claim.Key] = g.Fence + uint64(g.Reserved)
		}
		require.LessOrEqual(w.t, g.Reserved, o.claim.Fences.Reserve)
		require.Equal(w.t, o.claim.Fences.Hint != 0, g.Clock != 0)
	}
	if w.backend == "reentrant" {
		// of that of several holds which ends last, and they may end in the same ms or not
		g.Label, g.Record = "", nil
	}
	return fmt.Sprintf("%t, %v, held %t, label %q, holder %q, record %q, left about %v",
		a.held, g.State, g.Held, g.Label, g.Holder, g.Record, g.Left.Round(time.Minute))
}

var (
	instant = regexp.MustCompile(`^([HKD])\d+ \d+ `) // and fence of a hold of reentrant's
	fence   = regexp.MustCompile(`^([HK].*\n)\d+\n`) // of a lease of single's
)

// found returns what is at a key, without what depends on when it was put there.
func (w *twins) found(i int, key string) string {
	db, ctx := w.dbs[i], w.t.Context()
	left := db.PTTL(ctx, key).Val().Round(time.Minute)
	switch kind := db.Type(ctx, key).Val(); kind {
	case "string":
		return fmt.Sprintf("%q for %v", fence.ReplaceAllString(db.Get(ctx, key).Val(), "$1"), left)
	case "hash":
		var fields []string
		for field, value := range db.HGetAll(ctx, key).Val() {
			fields = append(fields, field+" "+instant.ReplaceAllString(value, "$1 "))
		}
		slices.Sort(fields)
		return fmt.Sprintf("%q for %v", fields, left)
	default:
		return fmt.Sprintf("%s for %v", kind, left)
	}
}
