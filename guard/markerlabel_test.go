package guard_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// A busy answer may come from what a marker has left, such as on some nodes of a quorum.
func TestMarker_whoseKeyIsBusyShowsTheLabelAlone(t *testing.T) {
	var shown []string
	h := guard.Hook{
		Call: func(_ context.Context, e guard.CallEvent) { shown = append(shown, e.Label) },
		Skip: func(_ context.Context, e guard.SkipEvent) { shown = append(shown, e.Label) },
	}
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		store.OnAcquire = func(context.Context, int, driver.Claim) (driver.Answer, error) {
			return driver.Answer{State: driver.Busy, Left: time.Second, Label: "\x1e1764000000000 name\x1fweb-1"}, nil
		}
		require.Equal(t, "web-1", as[*guard.BusyError](t, g.Do(t.Context(), "k", nothing)).Label)
		require.Equal(t, []string{"web-1", "web-1"}, shown)
	}, guard.WithHook(h))
}

// A done marker says which kind of work is done, when, and by which process. The label comes first
// if there is no room for all: the name is cut, and then the time is left out.
func TestMarker_hasTheTimeAndTheName(t *testing.T) {
	name := strings.Repeat("n", 126) + "ö"
	cases := map[string]struct {
		label, name, want string
		noTime            bool
	}{
		"all":                      {label: "web-1", name: "POST /claims", want: "POST /claims"},
		"no label, no name":        {},
		"no name":                  {label: "web-1"},
		"the longest of all":       {label: strings.Repeat("l", 369), name: name, want: name},
		"a name that is cut":       {label: strings.Repeat("l", 370), name: name, want: name[:126]},
		"a shorter one":            {label: strings.Repeat("l", 495), name: name, want: "nn"},
		"no room for a name":       {label: strings.Repeat("l", 497), name: name},
		"no room for a time":       {label: strings.Repeat("l", 498), name: name, noTime: true},
		"the longest label":        {label: strings.Repeat("l", 512), name: name, noTime: true},
		"separators":               {label: "a\x1fb\x1e1 c\x1f", name: "d\x1fe", want: "d e"},
		"a label like a marker's":  {label: "\x1e1764000000000 name\x1flabel", name: "other", want: "other"},
		"a name with many letters": {label: "größer 大", name: "größer 大", want: "größer 大"},
	}
	for name, c := range cases {
		inBubbleOf(t, name, func(t *testing.T, g *guard.Guard, store *testStore) {
			opts := []guard.Option{guard.WithOnce(time.Hour), guard.WithLabel(c.label), guard.WithName(c.name)}
			require.NoError(t, g.Do(t.Context(), "k", sleeping(time.Minute), opts...))
			at := time.Now()
			if c.noTime {
				at = time.Time{}
			}
			time.Sleep(time.Second)
			done := as[*guard.DoneError](t, g.Do(t.Context(), "k", nothing, opts...))
			require.Equal(t, c.label, done.Label)
			require.Equal(t, c.want, done.Name)
			require.True(t, at.Equal(done.At), "%v is not %v", done.At, at)
			other := openGuard(t, store.memory)
			inspector, ok := other.Adapter().Inspector()
			require.True(t, ok)
			info, err := inspector.Show(t.Context(), "k")
			require.NoError(t, err)
			require.Equal(t, driver.Marker{Label: done.Label, Name: done.Name, DoneAt: done.At, Left: time.Hour - time.Second}, *info.Marker)
			for _, call := range store.Calls() {
				require.LessOrEqual(t, len(call.Claim.Label), 512)
			}
		})
	}
}

// The label of a marker that no Guard has left is returned unchanged.
func TestMarker_withoutATimeIsReadable(t *testing.T) {
	for _, label := range []string{"", "web-1", "\x1e", "\x1e\x1f", "\x1ex y\x1fz", "\x1e12 y", "12 y\x1fz"} {
		inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
			c := driver.Claim{Key: "k", ID: "id", Owner: "id", TTL: ttl}
			_, err := store.memory.TryAcquire(t.Context(), c)
			require.NoError(t, err)
			c.Label = label
			_, err = store.memory.Release(t.Context(), c, driver.After{Keep: time.Hour, Done: true})
			require.NoError(t, err)
			done := as[*guard.DoneError](t, g.Do(t.Context(), "k", nothing))
			require.Equal(t, label, done.Label)
			require.Empty(t, done.Name)
			require.Zero(t, done.At)
		})
	}
}

// The clock of the process is not that of the store. The time is the store's, also after hand-offs
// and after DoAll has raised the fence.
func TestMarker_hasTheTimeOfTheStore(t *testing.T) {
	const ahead = 100 * time.Hour
	var grants uint64
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		store.OnAcquire = func(ctx context.Context, _ int, c driver.Claim) (driver.Answer, error) {
			answer, err := store.memory.TryAcquire(ctx, c)
			if answer.State == driver.Granted {
				grants++
				answer.Fence = uint64(time.Now().Add(ahead).Unix())<<20 + grants
			}
			return answer, err
		}
		for key, run := range map[string]func(opts ...guard.Option) error{
			"alone": func(opts ...guard.Option) error {
				return g.Do(t.Context(), "alone", sleeping(time.Minute), opts...)
			},
			"raised": func(opts ...guard.Option) error {
				return g.Do(t.Context(), "raised", func(ctx context.Context) error {
					time.Sleep(time.Minute)
					return g.DoAll(ctx, []string{"raised", "z"}, nothing)
				}, opts...)
			},
		} {
			require.NoError(t, run(guard.WithOnce(time.Hour)))
			at := time.Now().Add(ahead)
			time.Sleep(time.Second)
			require.WithinDuration(t, at, as[*guard.DoneError](t, g.Do(t.Context(), key, nothing)).At, time.Millisecond, key)
		}
	})
}
