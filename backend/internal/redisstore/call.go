package redisstore

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/backend/internal/rediserr"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// A Script is a Lua script that the server knows by its hash.
type Script struct {
	source, sha any // strings, which are arguments of commands
	layout
	queued  *Script                     // see Queue; or nil
	Literal func() (source, sha string) // see toLiteral
}

// A layout says what calls of a script have. KEYS are those of each call, and further ones. ARGV
// are those of each call, the shared ones, the record, and further ones.
type layout struct {
	keys, args int // of each call
	shared     int
	record     bool
	many       bool // the script serves many calls at once, see batch.lua
}

// NewScript returns the script of that source. It serves one call, which has FurtherKeys and
// FurtherArgs only.
func NewScript(source string) *Script {
	return &Script{
		source: source, sha: redis.NewScript(source).Hash(),
		Literal: sync.OnceValues(func() (string, string) { return literalOf(source, 0) }),
	}
}

// A Call is one run of a script for the key of a claim.
type Call struct {
	Op   driver.Op
	Key  string        // the claim's, for errors
	TTL  time.Duration // of the lease that is asked for
	Acks Acks          // what else has to be true before the call has succeeded
	// Hint is the claim's, if the script may answer the server's clock alone when it grants that.
	Hint uint64

	Script *Script
	Prefix string    // of Keys[0]
	Keys   [2]string // of the call alone, as many as the script says
	Args   [3]string // of the call alone, as many as the script says
	// Slot names the slot of the keys in a Cluster. "" stands for FenceKeyBeside(Keys[0]).
	Slot   string
	Shared [3]string // arguments that calls must have in common to share a script
	Record []byte    // follows the shared arguments. A call that has one shares no script
	// FurtherKeys and FurtherArgs follow all these in a script that serves one call.
	FurtherKeys []string
	FurtherArgs []any
	// IfShared returns the call to make instead of one that acquires a key, and that the script has
	// answered by the error SHARED. It is nil if there is none. Waits is the claim's, for IfShared.
	Waits    bool
	IfShared func(Call) Call
	// Repeats means that the call can be made again if its answer was lost: the second answer is
	// as good as the first.
	Repeats bool
}

// routeKey returns a key in the slot of the call's keys.
func (c *Call) routeKey() string {
	switch {
	case c.Prefix != "":
		return c.Prefix // it has the hash tag
	case c.Script.keys == 0:
		return c.FurtherKeys[0]
	default:
		return c.Keys[0]
	}
}

// slot returns a name of the slot of the call's keys.
func (c *Call) slot() string {
	if c.Slot == "" {
		return FenceKeyBeside(c.Keys[0])
	}
	return c.Slot
}

// canShare reports whether the calls can share a script, if the server takes their keys together.
func (c *Call) canShare(other *Call) bool {
	return c.Script == other.Script && c.Script.many && c.Shared == other.Shared &&
		len(c.Record) == 0 && len(other.Record) == 0
}

// provesLost reports whether err, from a renewal or a release, says that the claim does not hold
// the lease: the first thing that their scripts read is the lease's key, and it holds something
// else.
func (c *Call) provesLost(err error) bool {
	return err != nil && (c.Op == driver.OpRenew || c.Op == driver.OpRelease) &&
		rediserr.KindOf(err) == driver.KindWrongType
}

// instead reports whether another call has to be made after err, and changes c to that.
func (c *Call) instead(err error) bool {
	if err == nil || c.IfShared == nil || !redis.HasErrorPrefix(err, "SHARED") {
		return false
	}
	*c = c.IfShared(*c)
	c.IfShared = nil
	return true
}

// again reports whether the call has to be made again after err, once: the client's own time-out
// has ended it, and not ctx, so the server may only be slow. It is then sent by a patient client.
func (c *Call) again(ctx context.Context, err error) bool {
	if err == nil || !c.Repeats || ctx.Err() != nil || rediserr.KindOf(err) != driver.KindTimeout {
		return false
	}
	c.Repeats = false
	return true
}

// Int runs a script that answers an integer.
func (s *Store) Int(ctx context.Context, c Call) (int64, error) {
	answer, err := s.run(ctx, &c)
	if c.again(ctx, err) {
		answer, err = s.run(ctx, &c)
	}
	return s.toInt(&c, answer, err)
}

// StartHeld is Int that does not wait: done is called once with whether the answer is 1, or an
// error when none can come any more, which may be some time after ctx has ended. It must not block.
func (s *Store) StartHeld(ctx context.Context, c Call, done func(held bool, err error)) {
	r := s.unused.Get().(*request)
	r.store, r.ctx, r.call, r.held = s, ctx, c, done
	s.start(r)
}

// pass hands an answer to the caller of StartHeld or StartGrant.
func (s *Store) pass(r *request, answer any, err error) {
	granted, held := r.granted, r.held
	if r.call.again(r.ctx, err) {
		s.start(r)
		return
	}
	if r.call.instead(err) {
		r.bySource = false
		s.start(r)
		return
	}
	if granted != nil {
		grant, err := s.toGrant(&r.call, answer, err)
		s.free(r)
		granted(grant, err)
		return
	}
	n, err := s.toInt(&r.call, answer, err)
	s.free(r)
	held(n == 1, err)
}

func (s *Store) toInt(c *Call, answer any, err error) (int64, error) {
	n, ok := answer.(int64)
	switch {
	case c.provesLost(err):
		return 0, nil
	case err != nil:
		return 0, s.error(c, err)
	case !ok:
		return 0, s.error(c, ErrAnswer)
	}
	return n, nil
}

// Grant runs a script that asks for a key. Its answers are described in acquire.lua of the backends
// and in queue.lua.
func (s *Store) Grant(ctx context.Context, c Call) (driver.Grant, error) {
	if err := s.checkTTL(&c); err != nil {
		return driver.Grant{}, err
	}
	c.Repeats = true
	answer, err := s.run(ctx, &c)
	if c.again(ctx, err) {
		answer, err = s.run(ctx, &c)
	}
	if c.instead(err) {
		answer, err = s.run(ctx, &c)
	}
	return s.toGrant(&c, answer, err)
}

// StartGrant is to Grant what StartHeld is to Int.
func (s *Store) StartGrant(ctx context.Context, c Call, done func(driver.Grant, error)) {
	if err := s.checkTTL(&c); err != nil {
		done(driver.Grant{}, err)
		return
	}
	c.Repeats = true
	r := s.unused.Get().(*request)
	r.store, r.ctx, r.call, r.granted = s, ctx, c, done
	s.start(r)
}

func (s *Store) toGrant(c *Call, answer any, err error) (driver.Grant, error) {
	if err != nil && !isShortOfAcks(err) {
		return driver.Grant{}, s.error(c, err)
	}
	grant, ok := toGrant(answer)
	if _, alone := answer.(int64); ok && alone && c.Hint != 0 {
		grant.Fence, grant.Clock = c.Hint, grant.Fence
		ok = !grant.Held
	}
	switch {
	case !ok:
		return driver.Grant{}, s.error(c, ErrAnswer)
	case err != nil && grant.State == driver.Granted:
		// where it was not granted, there is nothing to acknowledge
		return driver.Grant{}, s.error(c, err)
	}
	return grant, nil
}

// Terms returns the arguments in which acquire finds what a claim asks for beside its key: the TTL
// in ms, the label, and what few claims ask for, see grant.lua.
func (s *Store) Terms(c driver.Claim) (ttl, label, special string) {
	switch {
	case c.Hint != 0 && c.Reserve <= 0 && c.Fence == 0 && s.minUptime == 0:
		// as most claims of a quorum
		special = strconv.FormatUint(c.Hint, 10)
	case c.Reserve > 0 || c.Fence != 0 || c.Hint != 0 || s.minUptime != 0:
		var room [4 * 21]byte // four numbers and spaces
		text := strconv.AppendInt(room[:0], int64(max(c.Reserve, 0)), 10)
		text = strconv.AppendUint(append(text, ' '), c.Fence, 10)
		text = strconv.AppendUint(append(text, ' '), c.Hint, 10)
		special = string(strconv.AppendInt(append(text, ' '), s.uptimeSeconds(), 10))
	}
	return s.ttlText(c.TTL), c.Label, special
}

// ttlText returns the TTL in ms. It is mostly that of the call before.
func (s *Store) ttlText(ttl time.Duration) string {
	last := s.lastTTL.Load()
	if last == nil || last.ttl != ttl {
		last = &ttlText{ttl, milliseconds(ttl)}
		s.lastTTL.Store(last)
	}
	return last.text
}

type ttlText struct {
	ttl  time.Duration
	text string
}

// Leave returns the arguments that say what release leaves behind: "", or a letter and for how
// long; the label of a done marker, and its record.
func Leave(c driver.Claim, after driver.After) (leave, label string, record []byte) {
	switch {
	case after.Keep <= 0:
		return "", "", nil
	case after.Done:
		return "D" + milliseconds(after.Keep), c.Label, after.Record
	default:
		return "K" + milliseconds(after.Keep), "", nil
	}
}

// RenewTerms returns the arguments of a renewal: the fence in use, the TTL in ms, and how many
// fences to reserve above a fence that is new.
func (s *Store) RenewTerms(c driver.Claim) (fence, ttl, reserve string) {
	return strconv.FormatUint(c.Fence, 10), s.ttlText(c.TTL), strconv.Itoa(c.Reserve)
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(Milliseconds(d), 10) }

// Milliseconds returns d as the argument of PX, rounded up.
func Milliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// ErrAnswer is the answer of a script that is not one of its answers.
var ErrAnswer = errors.New("the script's answer makes no sense")

func isNoScript(err error) bool { return err != nil && strings.Contains(err.Error(), "NOSCRIPT") }

// noRetry keeps go-redis from sending a command again after its reply was lost: the second answer
// would be taken for the first one's ("busy" for a key that is ours, "not held" for a release that
// was done). The engine repeats what may be repeated.
type noRetry struct{ redis.Cmder }

func (*noRetry) NoRetry() bool { return true }
