package guard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// leaderTTL is the TTL of a leader's lease unless WithTTL sets another. It is half of DefaultTTL:
// after the leader has died, nobody leads for that long.
const leaderTTL = 15 * time.Second

// ErrStopLeading, returned by the function of a Candidate, ends the candidacy: Run returns nil. An
// error that wraps it ends the candidacy, too, and Run returns that error.
var ErrStopLeading = errors.New("stop leading")

// A Candidate takes part in the election of a leader: of all Candidates for a key, one leads at a
// time. A term is one lease on the key, and its number is the fence of the lease (Fence). Fences
// grow from one term to the next, so a resource that remembers the highest one can refuse a former
// leader. A Candidate is safe for concurrent use.
type Candidate struct {
	guard       *Guard
	key, stored string
	set         *settings
	opts        []Option // the options of each campaign
	f           func(context.Context) error

	running atomic.Bool          // Run is running
	term    atomic.Pointer[term] // the current term, or nil
}

// A term is one call of a Candidate's function.
type term struct {
	holder *holder
	began  time.Duration
	ctx    context.Context // the context of the function
	end    context.CancelCauseFunc
	ended  atomic.Int64 // when ctx ended, or clock.Never
	early  bool         // the function returned before ctx ended
	err    error        // what the function returned
}

// Candidate returns a Candidate for the key. It does nothing until Run is called. A process needs
// one Candidate for a key.
//
// Run calls f at the beginning of each term. f leads until its context ends, and should then return
// soon. The context ends with the lease (its cause is then a *LostError), on Resign, when the
// Guard is closed, and with the context of Run. The lease is released only after f has returned,
// so another process can lead then, at once. The process itself does not campaign before that. If
// f returns earlier, the process resigns by that, and campaigns again after a pause: one or two
// seconds after nil, longer with each error in a row, and at most a minute. ErrStopLeading ends the
// candidacy.
//
// The options are those of the leader's lease. WithLabel is what others see as Leader.Label, such
// as the address to which they forward requests. WithMaxHold limits a term, and WithMinHold keeps
// others from leading before a new term is that old. WithTTL defaults to 15 s if New has none
// either. An option that cannot work for a leader is a *SettingError: WithWait, WithOnce,
// WithOncePer, WithOwner, WithOwnerFrom, WithLimit, WithShared and WithoutRenewal. Those of New
// count, too, except for WithWait, which has no effect here. A key that cannot work is a *KeyError.
//
// Use a key for the election alone: while another call holds it, or has left a done marker there
// (WithOnce), no process leads.
func (g *Guard) Candidate(key string, f func(ctx context.Context) error, opts ...Option) (*Candidate, error) {
	if f == nil {
		return nil, errNoFunction
	}
	if !g.given["WithTTL"] {
		opts = append([]Option{WithTTL(leaderTTL)}, opts...)
	}
	opts = slices.Clip(opts)
	set, stored, err := g.prepare(key, opts)
	if err == nil {
		err = g.checkLeader(set, opts)
	}
	if err != nil {
		return nil, err
	}
	return &Candidate{
		guard: g, key: key, stored: stored, set: set, f: f,
		opts: append(opts, WithWait(Forever), func(s *settings) { s.purpose = PurposeCandidate }),
	}, nil
}

// checkLeader returns a *SettingError if the options cannot work for the lease of a leader. set are
// the settings that result from them.
func (g *Guard) checkLeader(set *settings, opts []Option) error {
	given := settings{given: map[string]bool{}}
	_, _ = given.with(opts) // it notes them
	const several = "would allow several leaders"
	for _, bad := range []struct {
		is              bool
		setting, reason string
	}{
		{given.given["WithWait"], "WithWait", "has no effect here: a candidate waits until it leads"},
		{set.window > 0, set.onceOption(), "has no effect here: a leader does not finish"},
		{given.given["WithOwnerFrom"] || g.given["WithOwnerFrom"], "WithOwnerFrom", several},
		{set.owner != "", "WithOwner", several},
		{set.maxHolders == driver.Unlimited, "WithShared", several},
		{set.maxHolders > 1, "WithLimit", several},
		{set.noRenewal, "WithoutRenewal", "would end each term after a TTL: WithMaxHold limits a term"},
	} {
		if bad.is {
			return &SettingError{Setting: bad.setting, Reason: bad.reason}
		}
	}
	return nil
}

// Leading returns the number of the term, and true, if this process leads. It goes by the deadline
// of the lease: it reads the clock and does not ask the store, as Lease.Valid does. So it is false
// before another process can lead. It is also false once the context of f has ended.
func (c *Candidate) Leading() (fence uint64, ok bool) {
	t := c.term.Load()
	if t == nil || t.ctx.Err() != nil || !t.holder.valid() {
		return 0, false
	}
	return t.holder.fence.Load(), true
}

// errResigned is the cause with which Resign ends the context of a term.
var errResigned = errors.New("guard: the leader has resigned")

// Resign ends the term, if this process leads: the context of f ends. It does not wait for f. The
// candidate campaigns again a second or two after f has returned, so that another process can lead.
// To leave the election for good, end the context of Run.
func (c *Candidate) Resign() {
	if t := c.term.Load(); t != nil {
		t.end(errResigned)
	}
}

// Check returns an error if f is still running a TTL after its context has ended, or after the
// deadline of its lease has passed. The process then neither leads nor campaigns, or acts as a
// leader although it is none, and has to be restarted. It is for a liveness probe, such as /livez
// of Kubernetes. It does not ask the store: a candidate that cannot reach it is healthy.
func (c *Candidate) Check() error {
	t := c.term.Load()
	if t == nil {
		return nil
	}
	ended := min(time.Duration(t.ended.Load()), t.holder.end())
	if late := c.guard.clock.Now() - ended; late > c.set.ttl {
		return fmt.Errorf("guard: candidate for %q: the leader's function is still running, %v after its term has ended",
			c.key, late.Round(time.Millisecond))
	}
	return nil
}
