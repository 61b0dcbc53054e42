package guardwatermill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

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
	produced []*message.Message
	claim.Attempt
}

func (m *middleware) newDelivery(msg *message.Message, next message.HandlerFunc) *delivery {
	ctx := msg.Context()
	handler := message.HandlerNameFromCtx(ctx)
	return &delivery{m: m, msg: msg, next: next, ctx: ctx, handler: handler, Attempt: m.core.Begin(ctx, handler)}
}

// String names the message in errors.
func (d *delivery) String() string { return fmt.Sprintf("a message of handler %q", d.handler) }

// process runs the handler, or finds what it has produced before. It returns what is for the
// router.
func (d *delivery) process() ([]*message.Message, error) {
	defer d.Report()
	err := d.Identify(claim.Source{Kind: d.handler, Of: d.String, Key: func() (string, error) {
		key, err := d.m.key(d.msg)
		if err != nil {
			return "", err
		}
		return found(d.msg, key, "the key")
	}})
	switch {
	case err != nil:
		return d.refuse(err)
	case d.Identity == "":
		err := d.Unguarded(func() error { return d.handle(d.ctx) })
		return d.produced, err
	}
	return d.answer(d.Do(d.ctx, d.m.Wait, d.run))
}

// run calls the handler under the lease of ctx, and makes what it has produced the record of the
// marker.
func (d *delivery) run(ctx context.Context, marker *guard.Lease) error {
	err := d.Call(func() error { return d.handle(context.WithValue(ctx, runKey{}, d.Key)) })
	if err != nil || marker == nil {
		return err
	}
	record, err := encode(d.produced, d.m.record)
	if err == nil {
		err = marker.SetRecord(record)
	}
	if err != nil {
		marker.DiscardMarker()
		d.Outcome.Refused = err
	}
	return nil
}

// handle calls the handler in ctx, and gives the message its context back.
func (d *delivery) handle(ctx context.Context) (err error) {
	d.msg.SetContext(ctx)
	defer d.msg.SetContext(d.ctx)
	d.produced, err = d.next(d.msg)
	return err
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
	switch v.Result {
	case claim.Ran:
		var closed *guard.ClosedError
		switch {
		case errors.As(v.Err, &closed), claim.IsCutOff(d.ctx, v.Err, d.Err):
			return d.postpone(claim.Ran, v.Err)
		case errors.Is(v.Err, guard.ErrLost):
			return nil, v.Err
		}
		d.detach()
		return d.produced, d.Err // also if the marker may be missing
	case claim.Done:
		produced, err := decode(v.Record)
		if err != nil {
			return d.refuse(err)
		}
		return produced, nil
	case claim.Busy:
		return d.answerBusy(v.Err)
	case claim.Unavailable:
		return d.postpone(claim.Unavailable, v.Err)
	case claim.Canceled:
		return nil, &PostponedError{Err: v.Err}
	default:
		return d.refuse(fmt.Errorf("guardwatermill: lease of %v: %w", d, v.Err))
	}
}

// answerBusy returns what is for the router if the key is busy.
func (d *delivery) answerBusy(err error) ([]*message.Message, error) {
	switch d.m.busy {
	case Skip:
		d.End(claim.Skipped, err)
		return nil, nil
	case Fail:
		d.pause()
		return nil, fmt.Errorf("guardwatermill: %v: %w", d, err)
	case Requeue:
	}
	return d.postpone(claim.Postponed, err)
}

// postpone returns the error for a message that comes again, after the delay.
func (d *delivery) postpone(r claim.Result, err error) ([]*message.Message, error) {
	postponed := &PostponedError{Err: err}
	d.End(r, postponed)
	d.pause()
	return nil, postponed
}

// refuse returns the error for a message that cannot be handled as it is, after the delay.
func (d *delivery) refuse(err error) ([]*message.Message, error) {
	d.pause()
	return nil, d.Refuse(err)
}

// pause waits for the delay, or until the message's context ends.
func (d *delivery) pause() {
	t := time.NewTimer(cmp.Or(d.m.Delay, defaultDelay))
	defer t.Stop()
	select {
	case <-t.C:
	case <-d.ctx.Done():
	}
}
