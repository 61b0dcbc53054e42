// Package claim runs the handler of a message or a job under a lease, or says why it did not run.
// The adapters of brokers and of job queues share it.
package claim

import (
	"context"
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/internal/keys"
	"github.com/seed-1795987d/onerun/middleware/internal/refused"
)

// Settings are what an adapter needs, however its broker works.
type Settings struct {
	refused.List

	Adapter string // "watermill", of the package guardwatermill
	Group   string // of kinds of work that share their keys, or ""
	Once    time.Duration
	TTL     time.Duration // if neither guard.New nor Lease has one
	Lease   []guard.Option
}

// A Core is what an adapter keeps for all of its messages. It is safe for concurrent use.
type Core struct {
	Settings
	guard *guard.Guard
	opts  []guard.Option // of every lease
	name  string         // theirs, or ""
}

// New returns the Core for a Guard. All that cannot work is in one error, of *guard.SettingError.
func New(g *guard.Guard, s Settings) (*Core, error) {
	c := &Core{Settings: s, guard: g}
	if g == nil {
		c.Refuse("guard", nil, "must not be nil")
		return nil, c.Err
	}
	a := g.Adapter()
	if !a.Given("WithTTL") {
		c.opts = append(c.opts, guard.WithTTL(s.TTL))
	}
	c.opts = append(append(c.opts, s.Lease...), guard.WithWait(0), a.Probe())
	check := c.opts
	if s.Once > 0 {
		c.opts = append(c.opts, guard.WithOnce(s.Once))
		// a limit is refused by its own name
		check = append(slices.Clip(c.opts), guard.WithLimit(0))
	}
	c.name = a.Name(c.opts...)
	c.Err = errors.Join(c.Err, a.Check(c.unused(), s.Lease...), g.Check(s.Adapter, check...))
	if c.Err != nil {
		return nil, c.Err
	}
	return c, nil
}

// unused returns the options of guard that the adapter cannot honor, and why.
func (c *Core) unused() map[string]string {
	const owner = "cannot be that of all messages, which would hold their keys together"
	mine := "guard" + c.Adapter
	no := map[string]string{
		"WithWait":      "has no effect here: WithWait of " + mine + " sets how long a message waits",
		"WithOnce":      "has no effect here: WithOnce of " + mine + " keeps out repeats",
		"WithOwner":     owner,
		"WithOwnerFrom": owner,
	}
	if c.Once > 0 {
		const alone = "cannot be combined with WithOnce: a record is of one run"
		no["WithLimit"], no["WithShared"] = alone, alone
	}
	return no
}

// Identity returns the key under which the store knows a key of a kind of work: a hash, so that
// what messages carry does not show in the store, and has none of its characters. A key with a
// marker and one without are different ones, so that one adapter can be inside of another.
func (c *Core) Identity(kind, key string) string {
	use := "kind"
	if c.Group != "" {
		use, kind = "group", c.Group
	}
	if c.Once > 0 {
		use = "once " + use
	}
	sum := keys.Hash(use, kind, key)
	return c.Adapter + ":" + base64.RawURLEncoding.EncodeToString(sum[:])
}

// Begin returns the Outcome of a message that has come. Its name is that of guard.WithName, or else
// the kind of work.
func (c *Core) Begin(kind string) guard.Outcome {
	o := guard.Outcome{Adapter: c.Adapter, Name: c.name, Start: time.Now()}
	if o.Name == "" {
		o.Name = c.nameOf(kind)
	}
	return o
}

// longestName is the longest name that guard.WithName takes.
const longestName = 128

func (c *Core) nameOf(kind string) string {
	if kind == "" || len(kind) > longestName || strings.Contains(kind, "\x00") || !utf8.ValidString(kind) {
		return c.Adapter
	}
	return kind
}

// Report notifies hooks of the end of a message.
func (c *Core) Report(ctx context.Context, o guard.Outcome) {
	o.Duration = time.Since(o.Start)
	c.guard.Adapter().Report(ctx, o, c.Lease...)
}

// A Result is what a claim has led to.
type Result int

// The results.
const (
	// Ran means that the handler ran under the lease. Err is nil, what the handler returned, a
	// *guard.LostError, or a *guard.MarkerError.
	Ran Result = iota
	// Done means that the work was done before. Verdict.Record is what that run has kept.
	Done
	// Busy means that the key is still busy after the wait.
	Busy
	// Unavailable means that the store was unavailable, or the Guard closed.
	Unavailable
	// Canceled means that the message's context has ended before its handler began.
	Canceled
	// Refused means that the claim cannot work, however often it is tried.
	Refused
)

// A Verdict is how a claim ended.
type Verdict struct {
	Result Result
	Record []byte        // of Done
	Left   time.Duration // of Busy: for how long the lease in the way lasts, at most
	Label  string        // of Done and Busy: that of the other run
	Err    error
}

// Do runs f under the lease of a key that Identity has returned, if it gets the lease within wait.
// name is that of the Outcome. If f returns an error, panics or ends its goroutine, or if the lease
// is lost, there is no marker.
func (c *Core) Do(ctx context.Context, key, name string, wait time.Duration, f func(ctx context.Context, l *guard.Lease) error) Verdict {
	ran := false
	opts := append(slices.Clip(c.opts), guard.WithName(name))
	if wait > 0 {
		opts = append(opts, guard.WithWait(wait))
	}
	err := c.guard.Do(ctx, key, func(ctx context.Context) error {
		ran = true
		l, _ := guard.FromContext(ctx)
		return f(ctx, l)
	}, opts...)
	v := Verdict{Err: err}
	var done *guard.DoneError
	var busy *guard.BusyError
	switch {
	case ran:
		v.Result = Ran
	case errors.As(err, &done):
		v.Result, v.Record, v.Label, v.Err = Done, done.Record, done.Label, nil
	case ctx.Err() != nil:
		v.Result = Canceled
	case errors.As(err, &busy):
		v.Result, v.Left, v.Label = Busy, busy.Left, busy.Label
	case errors.Is(err, guard.ErrStore), errors.Is(err, guard.ErrClosed):
		v.Result = Unavailable
	default:
		v.Result = Refused
	}
	return v
}

// IsCutOff reports whether a run was ended that had not failed: its lease expired because the store
// could not renew it, or Guard.Close revoked it, and the handler returned the error of its context.
// A lease that ends for another reason, such as WithMaxHold, would end the next run in the same
// way. ctx is the one from before the run, err how the run ended, and returned what its handler
// returned.
func IsCutOff(ctx context.Context, err, returned error) bool {
	var lost *guard.LostError
	var closed *guard.ClosedError
	outage := errors.As(err, &lost) && lost.Reason == guard.LossExpired && lost.Renew != nil
	if ctx.Err() != nil || !outage && !errors.As(err, &closed) {
		return false
	}
	// errors.Is would also look into an errors.Join, which has an error of the handler's own
	for e := returned; e != nil; e = errors.Unwrap(e) {
		switch e.(type) { //nolint:errorlint // see above
		case *guard.LostError, *guard.ClosedError: // the cause of its context
			return true
		}
		if e == context.Canceled { //nolint:errorlint // see above
			return true
		}
	}
	return false
}
