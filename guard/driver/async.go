package driver

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
)

// An Async is a Locker whose calls do not make the caller wait. It sends several calls in one round
// trip if it can. A Guard renews by it, and claims and releases several keys by it. A quorum asks
// its nodes by it.
type Async interface {
	// Start starts a call for each of the claims: TryAcquire, Renew or Release, by op. Releases
	// leave behind what after specifies. Claims to be renewed all have the same TTL.
	//
	// done is called once for each claim, with the claim's index, from any goroutine, and possibly
	// before Start returns. It is called as soon as the answer is known: a slow server must not
	// delay the answers of others. If no answer can come any more, done is called with an error.
	// That may be some time after ctx has ended. Answer.Held is the answer to Renew and Release.
	//
	// Neither Start nor done may block. The caller must not change claims afterwards. A caller that
	// has to wait uses Await.
	Start(ctx context.Context, op Op, claims []Claim, after After, done func(i int, a Answer, err error))
}

// AsyncOf returns l if it is an Async, and Each{l} otherwise.
func AsyncOf(l Locker) Async {
	if a, ok := l.(Async); ok {
		return a
	}
	return Each{l}
}

// Each makes a Locker an Async by a goroutine for each call. A call that panics or ends its
// goroutine has an error as its answer. A goroutine goes on after ctx has ended if the call does,
// and guard.Guard.Close does not count it. The Start method of a Locker that has something better
// only for some calls can pass on the others to it.
type Each struct{ Locker }

// Start implements Async.
func (e Each) Start(ctx context.Context, op Op, claims []Claim, after After, done func(i int, a Answer, err error)) {
	for i, c := range claims {
		go func() {
			var a Answer
			err := errEnded // unless the call returns
			defer func() { done(i, a, caught(recover(), err)) }()
			a, err = Call(ctx, e.Locker, op, c, after)
		}()
	}
}

// Call makes the call that op names, and returns its answer as Async does.
func Call(ctx context.Context, l Locker, op Op, c Claim, after After) (a Answer, err error) {
	switch op {
	case OpAcquire:
		return l.TryAcquire(ctx, c)
	case OpRenew:
		a.Held, err = l.Renew(ctx, c)
	default:
		a.Held, err = l.Release(ctx, c, after)
	}
	return a, err
}

// Await starts a call for each of the claims by AsyncOf(l). It returns when all have an answer, or
// when ctx has ended. It calls done exactly once for each claim, and never after it has returned.
// Claims without an answer then have a *StoreError. So they have if l panics or ends the goroutine.
func Await(ctx context.Context, l Locker, op Op, claims []Claim, after After, done func(i int, a Answer, err error)) {
	if len(claims) == 0 {
		return
	}
	answered := make([]atomic.Bool, len(claims))
	all, open := make(chan struct{}), atomic.Int64{}
	open.Store(int64(len(claims)))
	once := func(i int, a Answer, err error) {
		if !answered[i].CompareAndSwap(false, true) {
			return
		}
		defer func() {
			if open.Add(-1) == 0 {
				close(all)
			}
		}()
		done(i, a, err)
	}
	err := errEnded // unless Start returns
	defer func() {
		err = caught(recover(), err)
		for i, c := range claims {
			if !answered[i].Load() {
				once(i, Answer{}, NewStoreError(Describe(l).Name, op, c.Key, err))
			}
		}
		<-all // also those that are being answered
	}()
	AsyncOf(l).Start(ctx, op, claims, after, once)
	select {
	case <-all:
	case <-ctx.Done():
		err = ctx.Err()
	}
}

var errEnded = errors.New("the call has ended its goroutine")

// caught returns err, or an error that says that a call has panicked.
func caught(panicked any, err error) error {
	if panicked != nil {
		return fmt.Errorf("it panicked: %v", panicked)
	}
	return err
}
