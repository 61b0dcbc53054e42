package soak_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/verify/history"
)

// The kinds of events that are ours: a run of something that has to be done once, a delivery of a
// task, and a report of ticks that did not run. Event.Holder says what of.
const (
	runKind      history.Kind = "run"
	deliveryKind history.Kind = "delivery"
	reportKind   history.Kind = "report"
)

var errRefused = errors.New("the resource has refused the write")

// effect is what all that works under a lease does: it writes to the resource, works for some
// time, and writes once more. If once is not empty, it is the key that is left done, and what
// names what was done.
func (w *worker) effect(ctx context.Context, once, what string, takes time.Duration) error {
	lease, ok := guard.FromContext(ctx)
	if !ok {
		return errors.New("there is no lease")
	}
	belief := w.log.Believe(lease, lease.Key(), ttl, history.Now())
	defer belief.End()
	var run history.Event
	if once != "" {
		run = w.log.Begin(history.Event{Kind: runKind, Key: once, Holder: what, Fence: lease.Fence()})
	}
	err := w.write(belief)
	if err == nil {
		select {
		case <-time.After(takes): // the work
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	if err == nil {
		err = w.write(belief)
	}
	if once == "" {
		return err
	}
	if run.Outcome = history.Unknown; err != nil { // until its lease is released
		run.Outcome, run.Err = history.Errored, err.Error()
	} else {
		w.mu.Lock()
		w.finished[once] = run
		w.mu.Unlock()
	}
	w.log.End(run)
	return err
}

func (w *worker) write(belief *history.Believer) error {
	accepted, err := w.resource.Write(belief)
	if err == nil && !accepted {
		err = errRefused
	}
	return err
}

// released notes that a run has left its key done.
func (w *worker) released(_ context.Context, e guard.ReleaseEvent) {
	w.mu.Lock()
	run, ok := w.finished[e.Key]
	quiet := w.quiet
	delete(w.finished, e.Key)
	w.mu.Unlock()
	if !ok || e.Err != nil {
		return
	}
	run.Outcome = history.OK
	w.log.End(run)
	if quiet {
		fmt.Println("did", run.Holder)
	}
}

// upTo returns a random duration under d.
func upTo(d time.Duration) time.Duration { return rand.N(d) }

// plainWork begins what calls the Guard itself, and returns what ends it.
func (w *worker) plainWork() (rest func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for _, loop := range []func(context.Context) error{w.doPlain, w.doPlain, w.acquirePlain, w.doOnce} {
		all.Go(func() {
			for ctx.Err() == nil {
				_ = loop(ctx) // whatever the result, there is a next one
				select {
				case <-time.After(upTo(40 * time.Millisecond)): // between two of them
				case <-ctx.Done():
				}
			}
		})
	}
	return func() { cancel(); all.Wait() }
}

func anyKey() string { return plainKeys[rand.N(len(plainKeys))] }

func (w *worker) doPlain(ctx context.Context) error {
	return w.guard.Do(ctx, anyKey(), func(ctx context.Context) error {
		return w.effect(ctx, "", "", upTo(60*time.Millisecond))
	}, guard.WithWait(upTo(2*ttl)))
}

// acquirePlain also holds a key for longer than a TTL now and then.
func (w *worker) acquirePlain(ctx context.Context) error {
	lease, err := w.guard.Acquire(ctx, anyKey(), guard.WithWait(upTo(2*ttl)))
	if err != nil {
		return err
	}
	takes := upTo(60 * time.Millisecond)
	if rand.N(20) == 0 {
		takes = ttl + upTo(ttl)
	}
	err = w.effect(lease.Context(), "", "", takes)
	return errors.Join(err, lease.Release(ctx))
}

// doOnce does what all workers want to be done once in each second.
func (w *worker) doOnce(ctx context.Context) error {
	key := fmt.Sprint("once ", time.Now().Unix())
	return w.guard.Do(ctx, key, func(ctx context.Context) error {
		return w.effect(ctx, key, key, upTo(60*time.Millisecond))
	}, guard.WithOnce(time.Hour), guard.WithWait(upTo(ttl)))
}
