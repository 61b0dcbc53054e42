package guardjetstream

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
	msg     jetstream.Msg
	lease   atomic.Pointer[guard.Lease] // once it is granted
	err     error                       // what the handler returned
	outcome guard.Outcome
}

// deliver handles a message and answers the server.
func (d *delivery) deliver(next Handler) {
	d.outcome = d.core.Begin("")
	d.outcome.Aborted = true // if a function panics
	d.end("refused", nil)
	defer func() { d.core.Report(context.Background(), d.outcome) }()
	identity, err := d.identify()
	if err != nil {
		d.answer(claim.Verdict{Result: claim.Refused, Err: err})
	} else {
		d.answer(d.run(identity, next))
	}
	d.outcome.Aborted = false
}

// identify returns the key under which the store knows the message.
func (d *delivery) identify() (string, error) {
	meta, err := d.msg.Metadata()
	if err != nil {
		return "", fmt.Errorf("guardjetstream: not a message of JetStream: %w", err)
	}
	d.outcome.Name = d.core.Begin(meta.Consumer).Name
	key, err := d.key(d.msg)
	if err == nil && key == "" {
		err = &KeyError{Subject: d.msg.Subject(), Reason: "the key is empty"}
	}
	return d.core.Identity(meta.Stream+"\x00"+meta.Consumer, key), err
}

// run runs the handler under the lease, if it gets it.
func (d *delivery) run(identity string, next Handler) claim.Verdict {
	defer d.keepAlive()()
	for wait := d.wait; ; {
		v := d.core.Do(context.Background(), identity, d.outcome.Name, wait, func(ctx context.Context, l *guard.Lease) error {
			d.lease.Store(l)
			d.end("ran", nil)
			d.outcome.Fence = l.Fence()
			d.err = next(ctx, d.msg)
			return d.err
		})
		switch {
		case !d.limited: // another delivery costs no attempt
			return v
		case v.Result == claim.Busy && d.busy == Requeue:
			wait = d.delay(v) // until the key is released, or the Guard closed
		case v.Result == claim.Unavailable && !errors.Is(v.Err, guard.ErrClosed):
			time.Sleep(min(d.delay(v), defaultDelay))
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
	d.outcome.Err, d.outcome.Label = v.Err, v.Label
	var err error
	switch {
	case v.Result == claim.Ran && d.err == nil: // also if the lease was lost, or has left no marker
		err = d.ack()
	case v.Result == claim.Ran:
		err = d.fail(d.err)
	case v.Result == claim.Done:
		d.end("done", nil)
		d.outcome.Skipped = "done"
		err = d.ack()
	case v.Result == claim.Busy:
		err = d.answerBusy(v)
	case v.Result == claim.Unavailable:
		d.end("unavailable", v.Err)
		err = d.nak(d.delay(v))
	default:
		d.end("refused", v.Err)
		d.outcome.Refused = v.Err
		err = d.fail(v.Err)
	}
	if err != nil { // the server delivers the message again
		d.outcome.Err = errors.Join(d.outcome.Err, fmt.Errorf("guardjetstream: answer the server: %w", err))
	}
}

func (d *delivery) answerBusy(v claim.Verdict) error {
	d.outcome.Skipped = "busy"
	switch d.busy {
	case Skip:
		d.end("skipped", nil)
		return d.ack()
	case Fail:
		d.end("busy", v.Err)
		return d.fail(v.Err)
	default:
		d.end("postponed", v.Err)
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
func (d *delivery) delay(v claim.Verdict) time.Duration {
	after := d.every
	if after == 0 {
		after = defaultDelay
		if v.Result == claim.Busy && v.Left > 0 {
			after = min(v.Left, maxPause)
		}
	}
	return after + rand.N(after/4+time.Millisecond) //nolint:gosec // jitter
}

func (d *delivery) end(result string, err error) { d.outcome.Result, d.outcome.Err = result, err }
