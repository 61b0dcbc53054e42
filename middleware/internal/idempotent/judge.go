package idempotent

import (
	"errors"
	"time"

	"github.com/seed-1795987d/onerun/guard"
)

// judge notes why a call got no lease.
func (c *Call) judge(err error) {
	var busy *guard.BusyError
	var done *guard.DoneError
	var full *fullError
	switch {
	case errors.As(err, &full):
		c.refuse(TooManyKeys, max(full.left, time.Second), err)
	case errors.As(err, &done):
		c.judgeRecord(done)
	case errors.As(err, &busy):
		c.refuse(InFlight, c.Core.RetryAfter, nil)
		if busy.Left > 0 {
			c.RetryAfter = min(c.RetryAfter, busy.Left)
		}
	case isAway(err) && c.Core.Open:
		c.refuse(Degraded, 0, err)
	case errors.Is(err, guard.ErrStore), errors.Is(err, guard.ErrClosed):
		c.refuse(Unavailable, c.Core.RetryAfter, err)
	default:
		c.refuse(Canceled, c.Core.RetryAfter, err)
	}
}

func (c *Call) refuse(result Result, retryAfter time.Duration, err error) {
	c.Result, c.RetryAfter, c.Err = result, retryAfter, says(result == Degraded, err)
}

// judgeRecord is judge for a call whose work is done.
func (c *Call) judgeRecord(done *guard.DoneError) {
	f, err := c.Core.read(done.Record, c.Key)
	if err == nil && f.HasAnswer {
		err = c.Transport.Read(f.Answer)
	}
	if err != nil {
		c.refuse(NotReplayable, 0, err)
		return
	}
	c.Origin = f.Origin
	switch {
	case !Same(c.Fingerprint, f.Fingerprint):
		c.refuse(Mismatch, 0, nil)
	case c.Core.Mode == Reject:
		c.refuse(Done, done.Left, nil)
	case !f.HasAnswer:
		c.refuse(NotReplayable, 0, nil)
	default:
		c.refuse(Replayed, 0, nil)
	}
}

// read returns what was found in the store under a key.
func (c *Core) read(stored []byte, key string) (*Found, error) {
	plain, err := c.sealer.open(stored, key, c.Unreadable)
	if err != nil {
		return nil, err
	}
	return Decode(plain, c.Adapter, c.Unreadable)
}
