// Package contain runs code that is not ours in goroutines of ours: a driver of a database, a
// Locker that a user has written. A panic there would end the process.
package contain

import (
	"context"
	"errors"
	"fmt"
)

// ErrEnded is the error of a call that has ended its goroutine, with runtime.Goexit.
var ErrEnded = errors.New("the call has ended its goroutine")

// A Panic is the error of a call that has panicked.
type Panic struct{ Value any }

func (p *Panic) Error() string { return fmt.Sprintf("it panicked: %v", p.Value) }

// Unwrap returns the value of the panic if it is an error.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// Call calls f, and then done with what f returns. It also calls done if f panics, with a *Panic,
// or ends the goroutine, with ErrEnded.
func Call[T any](f func() (T, error), done func(T, error)) {
	var t T
	err := ErrEnded // unless f returns
	defer func() {
		if p := recover(); p != nil {
			err = &Panic{p}
		}
		done(t, err)
	}()
	t, err = f()
}

// Within calls f in a goroutine and returns what f returns, or the error of Call. If ctx ends
// first, it returns the error of ctx, and f goes on.
func Within[T any](ctx context.Context, f func() (T, error)) (t T, err error) {
	type answer struct {
		t   T
		err error
	}
	answered := make(chan answer, 1)
	go Call(f, func(t T, err error) { answered <- answer{t, err} })
	select {
	case a := <-answered:
		return a.t, a.err
	case <-ctx.Done():
		return t, ctx.Err()
	}
}

// Do is Within for as long as f takes.
func Do[T any](f func() (T, error)) (T, error) { return Within(context.Background(), f) }

// Err is Do for a function that returns only an error.
func Err(f func() error) error {
	_, err := Do(func() (struct{}, error) { return struct{}{}, f() })
	return err
}
