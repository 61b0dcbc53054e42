// Package claim runs the handler of a message or a job under a lease, or says why it did not run.
// The adapters of brokers and of job queues share it. What follows calls all of that a message.
package claim

import (
	"context"
	"encoding/base64"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/internal/keys"
)

// A Core is what an adapter keeps for all of its messages. It is safe for concurrent use.
type Core struct {
	Settings
	Guard *guard.Guard
	opts  []guard.Option // of every lease
	name  string         // theirs, or ""
}

// New returns the Core for a Guard. All that cannot work is in one error, of *guard.SettingError.
func New(g *guard.Guard, s Settings) (*Core, error) {
	c := &Core{Settings: s, Guard: g}
	if g == nil {
		c.Refuse("guard", nil, "must not be nil")
		return nil, c.Err
	}
	a := g.Adapter()
	if !a.Given("WithTTL") {
		c.opts = append(c.opts, guard.WithTTL(s.TTL))
	}
	c.opts = append(append(c.opts, s.Lease...), guard.WithWait(0), a.Probe())
	c.name = a.Name(c.opts...)
	err := g.Check(s.Adapter, c.opts...)
	if err == nil {
		err = g.Check(s.Adapter, c.marked(c.opts)...)
	}
	c.Err = errors.Join(c.Err, a.Check(c.unused(), s.Lease...), err)
	if c.Err != nil {
		return nil, c.Err
	}
	return c, nil
}

// marked adds the options of the lease that leaves the done marker. It has no limit: one message at
// a time holds its key.
func (c *Core) marked(opts []guard.Option) []guard.Option {
	return append(slices.Clip(opts), guard.WithOnce(c.Once), guard.WithLimit(0))
}

// identity returns the key under which the store knows a key of a kind of work: a hash, so that
// what messages carry does not show in the store, and has none of its characters. A key with a
// marker and one without are different ones, so that one adapter can be inside of another.
func (c *Core) identity(kind, key string, marker bool) string {
	use := "kind"
	if c.Group != "" {
		use, kind = "group", c.Group
	}
	if marker {
		use = "once " + use
	}
	sum := keys.Hash(use, kind, key)
	return c.Adapter + ":" + base64.RawURLEncoding.EncodeToString(sum[:])
}

// nameOf returns a kind of work as a name.
func (c *Core) nameOf(kind string) string {
	if keys.IsName(kind) {
		return kind
	}
	return c.Adapter
}

// Look returns guard.ErrBusy if a key is busy, see guard.Adapter.Look.
func (c *Core) Look(ctx context.Context, identity string) error {
	return c.Guard.Adapter().Look(ctx, identity, c.opts...)
}

// Watch calls f when a key may be free, see guard.Adapter.Watch.
func (c *Core) Watch(identity string, f func(ctx context.Context)) (stop func()) {
	return c.Guard.Adapter().Watch(identity, f, c.opts...)
}

// Postpone returns for how long to postpone a message: for Delay, or else for d, and up to a
// quarter more, so that messages do not come back together.
func (c *Core) Postpone(d time.Duration) time.Duration {
	if c.Delay > 0 {
		d = c.Delay
	}
	return d + rand.N(d/4+time.Millisecond) //nolint:gosec // jitter
}

// The delays of a message that did not run, if nothing else sets them.
const (
	UnavailableDelay = 5 * time.Second
	LongestLease     = time.Minute
)

// Until returns for how long a message is not to be tried again: what is left of the lease in the
// way, at most LongestLease, or else UnavailableDelay. err is that of its Verdict.
func Until(err error) time.Duration {
	if left := Left(err); left > 0 {
		return min(left, LongestLease)
	}
	return UnavailableDelay
}

// Left returns for how long the lease in the way still lasts, or 0.
func Left(err error) time.Duration {
	var busy *guard.BusyError
	if errors.As(err, &busy) {
		return max(0, busy.Left)
	}
	return 0
}
