package guard

import (
	"context"
	"sync"
)

// A lifetime is the caller's context, which ends also with a lease, for a cause. A context of the standard library that does so
// is made only when somebody asks for Done: many runs are over before, and to make it, and to have it end with the
// caller's, costs as much as the rest of the run. It is never missed: Err looks at both ends, and what is made late has ended
// already if the lifetime has. It is there when anything looks for the cause, as context.Cause asks for Err before.
type lifetime struct {
	context.Context // the caller's

	mu    sync.Mutex
	whole context.Context         // nil until it is made
	cut   context.CancelCauseFunc // ends it
	cause error                   // what ended the lifetime before that
}

// end ends the lifetime, unless it has ended.
func (l *lifetime) end(cause error) {
	l.mu.Lock()
	cut := l.cut
	if cut == nil && l.cause == nil && l.Context.Err() == nil {
		l.cause = cause
	}
	l.mu.Unlock()
	if cut != nil {
		cut(cause)
	}
}

// make returns the context of the standard library. It is there for good then: its Value tells context.Cause, and contexts that are
// derived from it, where to look.
func (l *lifetime) make() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.whole != nil {
		return l.whole
	}
	parent := l.Context
	if l.cause != nil {
		parent = context.WithoutCancel(parent) // it may have ended since, which is not why the lifetime has
	}
	l.whole, l.cut = context.WithCancelCause(parent)
	if l.cause != nil {
		l.cut(l.cause)
	}
	return l.whole
}

// Done implements context.Context.
func (l *lifetime) Done() <-chan struct{} { return l.make().Done() }

// Err implements context.Context.
func (l *lifetime) Err() error {
	l.mu.Lock()
	going := l.whole == nil && l.cause == nil && l.Context.Err() == nil
	l.mu.Unlock()
	if going {
		return nil
	}
	return l.make().Err()
}

// Value implements context.Context.
func (l *lifetime) Value(key any) any {
	l.mu.Lock()
	from := l.whole
	l.mu.Unlock()
	if from == nil {
		from = l.Context
	}
	return from.Value(key)
}
