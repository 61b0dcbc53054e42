package guardwatermill

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/internal/claim"
)

// A delivery is one message that the router has given to a handler.
type delivery struct {
	m    *middleware
	msg  *message.Message
	next message.HandlerFunc

	ctx      context.Context // the message's
	handler  string          // its name in the router
	key      string
	produced []*message.Message
	err      error // what the handler returned
	outcome  guard.Outcome
}

// process runs the handler, or finds what it has produced before. It returns what is for the
// router.
func (d *delivery) process() ([]*message.Message, error) {
	d.ctx = d.msg.Context()
	d.handler = message.HandlerNameFromCtx(d.ctx)
	d.outcome = d.m.core.Begin(d.handler)
	d.outcome.Result = "refused" // if the KeyFunc panics
	defer func() { d.m.core.Report(d.ctx, d.outcome) }()
	key, err := d.m.key(d.msg)
	if errors.Is(err, ErrUnguarded) {
		d.outcome.Result = "unguarded"
		d.produced, d.outcome.Err = d.handle(d.ctx)
		return d.produced, d.outcome.Err
	}
	if err == nil {
		d.key, err = found(d.msg, key, "the key")
	}
	if err != nil {
		return d.refuse(fmt.Errorf("guardwatermill: key of a message of handler %q: %w", d.handler, err))
	}
	return d.answer(d.m.core.Do(d.ctx, d.m.core.Identity(d.handler, d.key), d.outcome.Name, d.m.wait, d.run))
}

// run calls the handler under the lease of ctx, and makes what it has produced the record of the
// marker.
func (d *delivery) run(ctx context.Context, lease *guard.Lease) error {
	d.outcome.Result, d.outcome.Fence = "ran", guard.Fence(ctx)
	d.produced, d.err = d.handle(context.WithValue(ctx, runKey{}, d.key))
	if d.err != nil || d.m.Once == 0 {
		return d.err
	}
	record, err := encode(d.produced, d.m.record)
	if err == nil {
		err = lease.SetRecord(record)
	}
	if err != nil {
		lease.DiscardMarker()
		d.outcome.Refused = err
	}
	return nil
}

// handle calls the handler in ctx, and gives the message its context back.
func (d *delivery) handle(ctx context.Context) ([]*message.Message, error) {
	d.msg.SetContext(ctx)
	defer d.msg.SetContext(d.ctx)
	d.outcome.Aborted = true
	produced, err := d.next(d.msg)
	d.outcome.Aborted = false
	return produced, err
}

// detach gives the produced messages a context that does not end with the lease: publishers may
// look at it.
func (d *delivery) detach() {
	for _, m := range d.produced {
		if m != nil && m.Context().Err() != nil && d.ctx.Err() == nil {
			m.SetContext(context.WithoutCancel(m.Context()))
		}
	}
}

// answer returns what is for the router after a claim.
func (d *delivery) answer(v claim.Verdict) ([]*message.Message, error) {
	d.outcome.Err, d.outcome.Label = v.Err, v.Label
	switch v.Result {
	case claim.Ran:
		var closed *guard.ClosedError
		switch {
		case errors.As(v.Err, &closed), claim.IsCutOff(d.ctx, v.Err, d.err):
			return d.postpone("ran", v.Err)
		case errors.Is(v.Err, guard.ErrLost):
			return nil, v.Err
		}
		d.detach()
		return d.produced, d.err // also if the marker may be missing
	case claim.Done:
		d.outcome.Result, d.outcome.Skipped = "done", "done"
		produced, err := decode(v.Record)
		if err != nil {
			return d.refuse(err)
		}
		return produced, nil
	case claim.Busy:
		d.outcome.Skipped = "busy"
		return d.answerBusy(v.Err)
	case claim.Unavailable:
		return d.postpone("unavailable", v.Err)
	case claim.Canceled:
		d.outcome.Result = "canceled"
		return nil, &PostponedError{Err: v.Err}
	case claim.Refused:
	}
	return d.refuse(fmt.Errorf("guardwatermill: lease of a message of handler %q: %w", d.handler, v.Err))
}

// answerBusy returns what is for the router if the key is busy.
func (d *delivery) answerBusy(err error) ([]*message.Message, error) {
	switch d.m.busy {
	case Skip:
		d.outcome.Result = "skipped"
		return nil, nil
	case Fail:
		d.outcome.Result = "busy"
		pause(d.ctx, d.m.delay)
		return nil, fmt.Errorf("guardwatermill: message of handler %q: %w", d.handler, err)
	case Requeue:
	}
	return d.postpone("postponed", err)
}

// postpone returns the error for a message that comes again, after the delay.
func (d *delivery) postpone(result string, err error) ([]*message.Message, error) {
	postponed := &PostponedError{Err: err}
	d.outcome.Result, d.outcome.Err = result, postponed
	pause(d.ctx, d.m.delay)
	return nil, postponed
}

// refuse returns the error for a message that cannot be handled as it is, after the delay.
func (d *delivery) refuse(err error) ([]*message.Message, error) {
	d.outcome.Result, d.outcome.Skipped, d.outcome.Err, d.outcome.Refused = "refused", "", err, err
	pause(d.ctx, d.m.delay)
	return nil, err
}
