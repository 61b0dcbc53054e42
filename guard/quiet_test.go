package guard_test

import (
	"context"
	"log"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
)

// A Guard reports to its hooks only. It never writes to a log or to stderr, even if everything
// fails.
func TestGuard_writesNothing(t *testing.T) {
	output, err := os.Create(filepath.Join(t.TempDir(), "output"))
	require.NoError(t, err)
	stderr, writer := os.Stderr, log.Writer()
	os.Stderr = output
	log.SetOutput(output) // package log/slog writes there, too
	t.Cleanup(func() {
		os.Stderr = stderr
		log.SetOutput(writer)
		require.NoError(t, output.Close())
	})

	synctest.Test(t, func(t *testing.T) {
		store := newTestStore()
		broken := guard.Hook{Release: func(context.Context, guard.ReleaseEvent) { panic("hook") }}
		g := openGuard(t, store, guard.WithTTL(ttl), guard.WithHook(broken))
		store.OnRenew = noRenewal
		thaw := store.freezeReleases()
		require.ErrorIs(t, g.Do(t.Context(), "lost", func(ctx context.Context) error { <-ctx.Done(); return nil }), guard.ErrLost)
		require.Panics(t, func() { _ = g.Do(t.Context(), "panics", func(context.Context) error { panic("no") }) })
		held := hold(t, g, "held")
		require.ErrorIs(t, g.Do(t.Context(), "held", nothing), guard.ErrBusy)
		ended := within(t, time.Second)
		require.Error(t, g.Close(ended))
		require.ErrorIs(t, context.Cause(held.Context()), guard.ErrClosed)
		thaw()
		time.Sleep(time.Minute) // until the cleaner has ended
	})

	text, err := os.ReadFile(output.Name())
	require.NoError(t, err)
	require.Empty(t, string(text))
}
