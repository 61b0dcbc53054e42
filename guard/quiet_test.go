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

// What a Guard has to tell it tells its hooks, however badly things go.
func TestGuard_writesNothing(t *testing.T) {
	said, err := os.Create(filepath.Join(t.TempDir(), "said"))
	require.NoError(t, err)
	stderr, writer := os.Stderr, log.Writer()
	os.Stderr = said
	log.SetOutput(said) // where package log/slog writes, too
	t.Cleanup(func() {
		os.Stderr = stderr
		log.SetOutput(writer)
		require.NoError(t, said.Close())
	})

	synctest.Test(t, func(t *testing.T) {
		store := newTestStore()
		broken := guard.Hook{Release: func(context.Context, guard.Event) { panic("hook") }}
		g, err := guard.New(store, guard.WithTTL(ttl), guard.WithHook(broken))
		require.NoError(t, err)
		store.OnRenew = func(ctx context.Context, _ int, _ guard.Claim) (bool, error) { return false, frozen(ctx) }
		thaw := store.freezeReleases()
		require.ErrorIs(t, g.Do(t.Context(), "lost", func(ctx context.Context) error { <-ctx.Done(); return nil }), guard.ErrLost)
		require.Panics(t, func() { _ = g.Do(t.Context(), "panics", func(context.Context) error { panic("no") }) })
		held := hold(t, g, "held")
		require.ErrorIs(t, g.Do(t.Context(), "held", nothing), guard.ErrBusy)
		ended, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Error(t, g.Close(ended))
		require.ErrorIs(t, context.Cause(held.Context()), guard.ErrClosed)
		thaw()
		time.Sleep(time.Minute) // for the cleaner to come to its end
	})

	text, err := os.ReadFile(said.Name())
	require.NoError(t, err)
	require.Empty(t, string(text))
}
