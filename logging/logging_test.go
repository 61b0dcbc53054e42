package logging_test

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	"github.com/seed-1795987d/onerun/logging"
)

func TestNew_refusesASettingThatCannotWorkAndNamesIt(t *testing.T) {
	for setting, opts := range map[string][]logging.Option{
		"logging.Option":       {nil},
		"logging.WithRedactor": {logging.WithRedactor(nil)},
		"logging.WithLongWait": {logging.WithLongWait(-time.Second)},
	} {
		_, err := logging.New(slog.Default(), opts...)
		var refused *guard.SettingError
		require.ErrorAs(t, err, &refused, setting)
		require.Equal(t, setting, refused.Setting)
		require.NotEmpty(t, refused.Reason)
	}
	_, err := logging.New(nil)
	require.ErrorContains(t, err, "logging.New")
}

// A logger that writes nothing costs a Guard nothing: it skips the hook.
func TestNew_isOffForALoggerThatDiscards(t *testing.T) {
	hook, err := logging.New(slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.True(t, hook.Off())
	hook, err = logging.New(slog.New(slog.NewTextHandler(new(bytes.Buffer), &slog.HandlerOptions{Level: slog.LevelError})))
	require.NoError(t, err)
	require.False(t, hook.Off())
}

// A site is two Guards over one store that write to one log.
type site struct {
	log        lines
	hook       guard.Hook
	store      *guardtest.Scripted
	inner      *memory.Locker
	one, other *guard.Guard
}

// newSite returns a site whose close must be called.
func newSite(t *testing.T, opts ...guard.Option) *site {
	t.Helper()
	s := &site{inner: memory.New()}
	var err error
	s.hook, err = logging.New(slog.New(slog.NewTextHandler(&s.log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	require.NoError(t, err)
	s.store = &guardtest.Scripted{Inner: s.inner}
	opts = append([]guard.Option{guard.WithTTL(20 * time.Second), guard.WithHook(s.hook)}, opts...)
	s.one, err = guard.New(s.store, opts...)
	require.NoError(t, err)
	s.other, err = guard.New(s.store, opts...)
	require.NoError(t, err)
	return s
}

func (s *site) close(t *testing.T) {
	t.Helper()
	require.NoError(t, s.one.Close(context.Background()))
	require.NoError(t, s.other.Close(context.Background()))
}

// lines are what a log has received. It may be used concurrently.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func nothing(context.Context) error { return nil }
