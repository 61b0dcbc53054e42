package idempotent

import (
	"context"
	"crypto/hmac"
	"errors"
	"fmt"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// judge notes why a call got no lease.
func (c *Call) judge(err error) {
	var busy *guard.BusyError
	var done *guard.DoneError
	var full *fullError
	switch {
	case errors.As(err, &full):
		c.refuse(idempotency.TooManyKeys, max(full.left, time.Second), err)
	case errors.As(err, &done):
		c.judgeRecord(done)
	case errors.As(err, &busy):
		c.Label = busy.Label
		c.refuse(idempotency.InFlight, c.Core.RetryAfter, nil)
		if busy.Left > 0 {
			c.RetryAfter = min(c.RetryAfter, busy.Left)
		}
	case isAway(err) && c.Core.FailOpen:
		c.refuse(idempotency.Degraded, 0, err)
	case errors.Is(err, guard.ErrStore), errors.Is(err, guard.ErrClosed):
		c.refuse(idempotency.Unavailable, c.Core.RetryAfter, err)
	default:
		c.refuse(idempotency.Canceled, c.Core.RetryAfter, err)
	}
}

func (c *Call) refuse(result idempotency.Result, retryAfter time.Duration, err error) {
	c.Result, c.RetryAfter, c.Err = result, retryAfter, says(result == idempotency.Degraded, err)
}

// judgeRecord is judge for a call whose work is done.
func (c *Call) judgeRecord(done *guard.DoneError) {
	c.Label = done.Label
	r, err := c.Core.read(done.Record, c.Key)
	switch {
	case err != nil:
		c.refuse(idempotency.NotReplayable, 0, err)
	case !Same(c.Fingerprint, r.Fingerprint):
		c.refuse(idempotency.Mismatch, 0, nil)
	case c.Core.Mode == idempotency.Reject:
		c.refuse(idempotency.Done, done.Left, nil)
	case r.Answer == nil:
		c.refuse(idempotency.NotReplayable, 0, nil)
	default:
		c.refuse(idempotency.Replayed, 0, nil)
		if err := c.Transport.Read(r.Answer); err != nil {
			c.refuse(idempotency.NotReplayable, 0, err)
		}
	}
}

// read returns what was found in the store under a key.
func (c *Core) read(stored []byte, key string) (*Record, error) {
	r, body, err := decode(stored)
	switch {
	case err != nil:
	case c.sealer != nil:
		r, body, err = c.sealer.open(r, body, key)
	case r.Key != "":
		err = Unreadable("it is encrypted, and there is no key", nil)
	}
	if err == nil {
		err = r.check(body, c.Adapter)
	}
	return r, err
}

// Same compares two fingerprints, in constant time. An empty one is the same as any: there was
// none when the record was made, or there is none now.
func Same(a, b []byte) bool { return len(a) == 0 || len(b) == 0 || hmac.Equal(a, b) }

// An Ending is how a handler has ended.
type Ending struct {
	Gone       bool // the client did not get all of the answer
	Unsure     bool // the handler may still run, so a retry must not run beside it
	Undecided  bool // other code may answer after the handler, which has not
	Replayable bool // the answer can be given again
}

// Keep returns what to keep of a run. final reports whether the answer is final by the policy. It
// is not called if the handler has chosen what to keep. ctx is the context of the call.
func (c *Call) Keep(ctx context.Context, e Ending, final func() bool) idempotency.Keep {
	s := c.Core.Settings
	switch {
	case s.Mode == idempotency.Exclusive:
		return idempotency.KeepNothing
	case (s.ClientCancel || s.Shadow) && (e.Gone || ctx.Err() != nil):
		return idempotency.KeepNothing
	case s.Shadow && e.Undecided:
		return idempotency.KeepNothing // shadow mode must not prevent the other answer
	case e.Unsure:
		return idempotency.KeepTombstone // whatever the policy says
	}
	keep, chosen := c.Run.Chosen()
	if !chosen {
		keep = idempotency.KeepAnswer
		if !final() {
			return idempotency.KeepNothing
		}
	}
	switch {
	case keep != idempotency.KeepAnswer:
		return keep
	case s.Mode == idempotency.Reject:
		return idempotency.KeepTombstone
	case !e.Replayable && s.Rerun:
		return idempotency.KeepNothing
	case !e.Replayable:
		return idempotency.KeepTombstone
	}
	return idempotency.KeepAnswer
}

// OfKey returns the result of a call whose KeyFunc has returned key and err: it is empty if there
// is a key.
func (s *Settings) OfKey(key string, err error, required bool) (idempotency.Result, error) {
	invalid := (*idempotency.KeyError)(nil)
	switch {
	case errors.Is(err, idempotency.ErrUnguarded):
		return idempotency.Untouched, nil
	case !errors.Is(err, idempotency.ErrNoKey) && (err != nil || key != ""):
	case required:
		return idempotency.KeyMissing, err
	default:
		return idempotency.Untouched, nil
	}
	switch {
	case err == nil:
		return "", nil
	case errors.As(err, &invalid):
		return idempotency.KeyInvalid, err
	default:
		return idempotency.Refused, err
	}
}

// OfScope returns the result of a call whose scope and err WithScope has returned: it is empty if
// there is a scope.
func (s *Settings) OfScope(scope string, err error) (idempotency.Result, error) {
	switch {
	case errors.Is(err, idempotency.ErrUnguarded):
		return idempotency.Untouched, nil
	case err != nil:
		return idempotency.Refused, fmt.Errorf("%s: the scope: %w", s.Adapter.Package(), err)
	case scope == "":
		return idempotency.Refused, errors.New(s.Adapter.Package() + ": the scope is empty")
	}
	return "", nil
}
