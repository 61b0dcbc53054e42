package idempotent

import (
	"crypto/hmac"
	"errors"
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
	if err == nil {
		r, body, err = c.sealer.open(r, body, key)
	}
	if err == nil {
		err = r.check(body, c.Adapter)
	}
	return r, err
}

// Same compares two fingerprints, in constant time. An empty one is the same as any: there was
// none when the record was made, or there is none now.
func Same(a, b []byte) bool { return len(a) == 0 || len(b) == 0 || hmac.Equal(a, b) }
