package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/backend/internal/rediserr"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// A Call is one run of a script for the key of a claim.
type Call struct {
	Op   driver.Op
	Key  string // the claim's, for errors
	Acks Acks   // what else has to be true before the call has succeeded

	Script *Script
	Names
	// Args are of the call alone. Calls must have Shared in common to share a script. The script
	// says how many of each it has.
	Args, Shared [3]string
	Record       []byte // follows the shared arguments. A call that has one shares no script
	// FurtherKeys and FurtherArgs follow all these in a script that serves one call.
	FurtherKeys []string
	FurtherArgs []any
	// Repeats means that the call can be made again if its answer was lost: the second answer is
	// as good as the first.
	Repeats bool
	// acquires is the claim of a call that asks for a key, and locker makes such calls.
	acquires driver.Claim
	locker   *Locker
}

// Names are the Redis keys of a call alone.
type Names struct {
	Prefix string    // of Keys[0]
	Keys   [2]string // as many as the script says
	// Slot names the slot of the keys in a Cluster. "" stands for FenceKeyBeside(Keys[0]).
	Slot string
}

// routeKey returns a key in the slot of the call's keys.
func (c *Call) routeKey() string {
	switch {
	case c.Prefix != "":
		return c.Prefix // it has the hash tag
	case c.Script.of.Keys == 0:
		return c.FurtherKeys[0]
	default:
		return c.Keys[0]
	}
}

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

// switchToShared changes c to the call of Program.Shared if the script for claims alone has found
// that others share the key. It reports whether it has.
func (c *Call) switchToShared(err error) bool {
	if err == nil || c.locker == nil || !redis.HasErrorPrefix(err, "SHARED") {
		return false
	}
	c.acquires.Repeated = true
	*c = c.locker.acquireCall(c.acquires)
	return true
}

// again reports whether the call has to be made again after err, once. If the client's own time-out
// has ended it, and not ctx, the server may only be slow. It is then sent by a client without
// time-outs, see slowMode. And the connection of renewals may have broken since the last one.
func (c *Call) again(ctx context.Context, err error) bool {
	if err == nil || !c.Repeats || ctx.Err() != nil {
		return false
	}
	kind := rediserr.KindOf(err)
	c.Repeats = false
	return kind == driver.KindTimeout || kind == driver.KindConnection && c.Op == driver.OpRenew
}

// ErrAnswer is the answer of a script that is not one of its answers.
var ErrAnswer = errors.New("the script's answer makes no sense")

func isNoScript(err error) bool { return err != nil && strings.Contains(err.Error(), "NOSCRIPT") }

// noRetry keeps go-redis from sending a command again after its reply was lost: the second answer
// would be taken for the first one's ("busy" for a key that is ours, "not held" for a release that
// was done). The engine repeats what may be repeated.
type noRetry struct{ redis.Cmder }

func (*noRetry) NoRetry() bool { return true }

// Acks asks that a number of replicas acknowledge a write within a time. The zero value asks for
// none.
type Acks struct {
	Replicas int
	Within   time.Duration
}

// shortOfAcks says that fewer replicas than asked for have a write.
type shortOfAcks struct{ got, want int64 }

func (e shortOfAcks) Error() string {
	return fmt.Sprintf("%d of %d replicas have acknowledged it", e.got, e.want)
}

func isShortOfAcks(err error) bool {
	var short shortOfAcks
	return errors.As(err, &short)
}
