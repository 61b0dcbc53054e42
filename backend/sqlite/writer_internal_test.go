package sqlite

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// A caller that leaves has ended its context, but need not have withdrawn its write yet when the
// other writer ends.
func TestWriter_takesNoWriteWhoseCallerHasLeft(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	left := &write{ctx: ended, done: make(chan error, 1)}
	first, second := &write{ctx: t.Context(), first: true}, &write{ctx: t.Context()}
	w := &writer{first: []*write{first}, rest: []*write{left, second}}
	require.Equal(t, []*write{first}, w.take(1))
	require.Equal(t, []*write{second}, w.take(1))
	require.ErrorIs(t, <-left.done, context.Canceled)
	require.Empty(t, w.take(1))
}
