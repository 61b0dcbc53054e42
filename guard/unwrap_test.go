package guard_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// An unwrapSelf is a Locker whose Unwrap method returns itself.
type unwrapSelf struct{ guard.Locker }

func (l unwrapSelf) Unwrap() driver.Locker { return l }

// Unwrap methods that do not end hide the abilities of the inner Locker, and stop nothing.
func TestUnwrap_inACircle(t *testing.T) {
	t.Parallel()
	over := make(chan error, 1)
	go func() {
		g, err := guard.New(unwrapSelf{memory.New()})
		if err != nil {
			over <- err
			return
		}
		g.Adapter().Store()
		over <- g.Do(context.Background(), "key", func(context.Context) error { return nil })
		_ = g.Close(context.Background())
	}()
	select {
	case err := <-over:
		require.NoError(t, err)
	case <-time.After(20 * time.Second):
		require.Fail(t, "the Guard hangs")
	}
}
