package guardasynq_test

import (
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/adaptertest"
	guardasynq "github.com/seed-1795987d/onerun/middleware/asynq"
)

func TestKeys_areThoseOfThePage(t *testing.T) {
	t.Parallel()
	store := adaptertest.NewKeyStore()
	inBubble(t, func(t *testing.T, b *bubble) {
		b.Locker = store
		m, end := b.middleware(guardasynq.FromType(), guardasynq.WithOnce(time.Hour, guardasynq.FromPayload()))
		defer end()
		run := asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil })
		require.NoError(t, m(run).ProcessTask(b.base(t.Context()), asynq.NewTask("import", []byte("x"))))
	})
	store.Check(t, "../../docs/asynq.md", "guardasynq", map[string]string{"HASH": `[\w-]+`})
	require.Len(t, store.Taken(), 2)
}
