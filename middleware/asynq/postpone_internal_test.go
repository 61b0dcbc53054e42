package guardasynq

import (
	"testing"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"
)

// What a task wants to have done that has run before may have been overtaken meanwhile.
func TestCoalesce_aCopyOfATaskThatHasRunIsOlderThanAllOthers(t *testing.T) {
	t.Parallel()
	d := &delivery{m: &middleware{settings: settings{busy: Coalesce}}, ctx: t.Context(), task: asynq.NewTask("import", nil)}
	_, ok := arrivedAt(d.headers())
	require.False(t, ok)
	d.Started = true
	at, ok := arrivedAt(d.headers())
	require.True(t, ok)
	require.Zero(t, at)
}
