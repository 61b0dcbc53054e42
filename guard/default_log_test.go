package guard_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
)

// A lineBuffer is a log. It may be used concurrently.
type lineBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lineBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// lines returns the lines about the work of that name, or about the store.
func (b *lineBuffer) lines(part string) (found []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for line := range strings.Lines(b.text.String()) {
		if strings.Contains(line, part) {
			found = append(found, line)
		}
	}
	return found
}

// logByDefault replaces slog.Default, which is that of the process: the test must not be parallel.
func logByDefault(t *testing.T) *lineBuffer {
	t.Helper()
	log, before := new(lineBuffer), slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(log, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return log
}

//nolint:paralleltest // see logByDefault
func TestDefaultLog_warnsOfAStoreThatLosesLeases(t *testing.T) {
	for name, c := range map[string]struct {
		opts   []guard.Option
		logged int
	}{
		"no hook":           {nil, 1},
		"a hook for others": {[]guard.Option{guard.WithHook(guard.Hook{})}, 0},
		"a hook for it":     {[]guard.Option{guard.WithHook(guard.Hook{Warn: func(context.Context, error) {}})}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			log := logByDefault(t)
			synctest.Test(t, func(t *testing.T) {
				w := &warner{Locker: memory.New(), warn: func(context.Context) []error { return []error{errors.New("it evicts leases")} }}
				g := newGuard(t, w, c.opts...)
				for range 3 {
					require.NoError(t, g.Do(t.Context(), "k", nothing))
					synctest.Wait()
				}
			})
			lines := log.lines("it evicts leases")
			require.Len(t, lines, c.logged)
			for _, line := range lines {
				require.Contains(t, line, `level=WARN msg="onerun: store may lose leases"`)
			}
		})
	}
}

//nolint:paralleltest // see logByDefault
func TestDefaultLog_warnsOfRefusalsAtMostOnceAMinute(t *testing.T) {
	log := logByDefault(t)
	refuse := func(g *guard.Guard, opts ...guard.Option) {
		g.Adapter().Report(t.Context(), guard.Outcome{
			Adapter: "http", Name: "POST /claims", Result: "refused", Key: "secret \"key\"", Owner: "alice",
			Refused: errors.New(`no scope for secret "key" or "secret \"key\"" of alice`),
		}, opts...)
	}
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, memory.New())
		g.Adapter().Report(t.Context(), guard.Outcome{Adapter: "http", Result: "missing", Err: errors.New("the client's mistake")})
		require.Empty(t, log.lines("http"))
		for range 180 { // in three minutes
			refuse(g)
			time.Sleep(time.Second)
		}
		lines := log.lines("work refused")
		require.Len(t, lines, 3)
		require.Contains(t, lines[0], "level=WARN")
		require.Contains(t, lines[0], `adapter=http name="POST /claims" result=refused error="no scope for … or \"…\" of …" refused=1`)
		require.Contains(t, lines[1], "refused=60")

		refuse(newGuard(t, memory.New(), guard.WithHook(guard.Hook{})))
		time.Sleep(time.Minute)
		refuse(g, guard.WithHook(guard.Hook{}))
		require.Len(t, log.lines("work refused"), 3, "a hook turns it off")
	})
}
