package guardjetstream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/internal/claim"
)

const (
	// maxReason bounds the reason of a message that is terminated: it must fit a message of NATS.
	maxReason = 512
	// ackTries is how often an acknowledgement is sent, within an AckWait, if the server does not
	// confirm it: it may have restarted.
	ackTries = 3
)

// A delivery is one message that the server has given to the consumer.
type delivery struct {
	*middleware
	msg   jetstream.Msg
	next  Handler
	lease atomic.Pointer[guard.Lease] // once it is granted
	claim.Attempt
}

func (m *middleware) newDelivery(msg jetstream.Msg, next Handler) *delivery {
	consumer := ""
	if meta, err := msg.Metadata(); err == nil {
		consumer = meta.Consumer
	}
	return &delivery{middleware: m, msg: msg, next: next, Attempt: m.core.Begin(context.Background(), consumer)}
}

// String names the message in errors.
func (d *delivery) String() string { return fmt.Sprintf("a message on %q", d.msg.Subject()) }

// deliver handles a message and answers the server.
func (d *delivery) deliver() {
	defer d.Report()
	if err := d.identify(); err != nil {
		d.answer(claim.Verdict{Result: claim.Refused, Err: err})
		return
	}
	d.answer(d.run())
}

// identify sets the key under which the store knows the message.
func (d *delivery) identify() error {
	d.End(claim.Refused, nil) // if the message has no metadata
	meta, err := d.msg.Metadata()
	if err != nil {
		return fmt.Errorf("guardjetstream: not a message of JetStream: %w", err)
	}
	return d.Identify(claim.Source{Kind: meta.Stream + "\x00" + meta.Consumer, Of: d.String, Key: func() (string, error) {
		key, err := d.key(d.msg)
		if err != nil {
			return "", err
		}
		return found(d.msg, key, "the key")
	}})
}

// run runs the handler under the lease, if it gets it.
func (d *delivery) run() claim.Verdict {
	defer d.keepAlive()()
	if d.Identity == "" {
		return claim.Verdict{Result: claim.Unguarded, Err: d.Unguarded(func() error { return d.next(context.Background(), d.msg) })}
	}
	for wait := d.Wait; ; {
		v := d.Do(context.Background(), wait, func(ctx context.Context, _ *guard.Lease) error {
			l, _ := guard.FromContext(ctx)
			d.lease.Store(l)
			return d.Call(func() error { return d.next(context.WithValue(ctx, runKey{}, d.Key), d.msg) })
		})
		switch {
		case !d.limited: // another delivery costs no attempt
			return v
		case v.Result == claim.Busy && d.busy == Requeue:
			wait = d.delay(v) // until the key is released, or the Guard closed
		case v.Result == claim.Unavailable && !errors.Is(v.Err, guard.ErrClosed):
			time.Sleep(min(d.delay(v), claim.UnavailableDelay))
		default:
			return v
		}
	}
}

// keepAlive sends InProgress now and three times in each AckWait, until stop is called or the lease
// is lost. The message may have been in the client's buffer for most of its AckWait. If InProgress
// does not arrive, the server delivers the message again, and that delivery finds the key busy.
func (d *delivery) keepAlive() (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	_ = d.msg.InProgress()
	go func() {
		defer close(ended)
		tick := time.NewTicker(max(d.ackWait/3, time.Millisecond))
		defer tick.Stop()
		for {
			select {
			case <-end:
				return
			case <-tick.C:
			}
			if l := d.lease.Load(); l != nil && !l.Valid() {
				return
			}
			_ = d.msg.InProgress()
		}
	}()
	return func() { close(end); <-ended }
}

// answer answers the server.
func (d *delivery) answer(v claim.Verdict) {
	var err error
	switch {
	case d.Started && d.Err == nil: // also if the lease was lost, or has left no marker
		err = d.ack()
	case d.Started:
		err = d.fail(d.Err)
	case v.Result == claim.Done:
		err = d.ack()
	case v.Result == claim.Busy:
		err = d.answerBusy(v)
	case v.Result == claim.Unavailable:
		err = d.nak(d.delay(v))
	default:
		err = d.fail(d.Refuse(v.Err))
	}
	if err != nil { // the server delivers the message again
		d.Outcome.Err = errors.Join(d.Outcome.Err, fmt.Errorf("guardjetstream: answer the server: %w", err))
	}
}

func (d *delivery) answerBusy(v claim.Verdict) error {
	switch d.busy {
	case Skip:
		d.End(claim.Skipped, v.Err)
		return d.ack()
	case Fail:
		return d.fail(v.Err)
	default:
		d.End(claim.Postponed, v.Err)
		return d.nak(d.delay(v))
	}
}

// fail makes the message come back, or never come back.
func (d *delivery) fail(err error) error {
	if !errors.Is(err, ErrTerminate) {
		return d.nak(d.retry(d.msg, err))
	}
	reason := strings.Join(strings.Fields(err.Error()), " ")
	return d.msg.TermWithReason(strings.ToValidUTF8(reason[:min(len(reason), maxReason)], ""))
}

// nak makes the message come back after a delay. If the consumer has a BackOff, the server adds to
// the delay what the delivery's step is longer than the first one (nats-server's processNak and
// checkPending). A delay of 0 would be none.
func (d *delivery) nak(delay time.Duration) error {
	if len(d.backOff) > 0 {
		delay = max(delay-(d.step(d.msg)-d.backOff[0]), time.Millisecond)
	}
	return d.msg.NakWithDelay(delay)
}

// ack acknowledges the message and waits until the server has confirmed that.
func (d *delivery) ack() (err error) {
	for range ackTries {
		ctx, cancel := context.WithTimeout(context.Background(), min(max(d.ackWait/ackTries, time.Second), 10*time.Second))
		err = d.msg.DoubleAck(ctx)
		final := err == nil || errors.Is(err, jetstream.ErrMsgAlreadyAckd) || errors.Is(err, nats.ErrConnectionClosed)
		if !final {
			<-ctx.Done() // a server that starts has no responder at first
		}
		cancel()
		if final {
			break
		}
	}
	return err
}

// delay returns for how long a message that did not run is postponed.
func (d *delivery) delay(v claim.Verdict) time.Duration { return d.core.Postpone(claim.Until(v.Err)) }
