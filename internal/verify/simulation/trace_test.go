package simulation_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-1795987d/onerun/guard"
)

// A trace is what happened in a world, by virtual time. Goroutines that run at the same instant
// write their lines in any order, so lines are sorted also by what they say.
type trace struct {
	mu    sync.Mutex
	lines []line
}

type line struct {
	at   time.Time
	text string
}

func (t *trace) add(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, line{time.Now(), text})
}

// since returns the trace as text, its instants counted from start.
func (t *trace) since(start time.Time) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	slices.SortStableFunc(t.lines, func(a, b line) int {
		return cmp.Or(a.at.Compare(b.at), strings.Compare(a.text, b.text))
	})
	var out strings.Builder
	for _, l := range t.lines {
		fmt.Fprintf(&out, "%13.9f %s\n", l.at.Sub(start).Seconds(), l.text)
	}
	return out.String()
}

// outcome returns what to write of a call's answer or error: of a store's error its kind only, as
// a read that times out and the context that ends at that same instant are two errors, either of
// which may be seen first.
func outcome(answer any, err error) any {
	var store *guard.StoreError
	var lost *guard.LostError
	switch {
	case errors.As(err, &lost):
		return "lost: " + lost.Reason
	case errors.As(err, &store):
		return store.Kind
	case err != nil:
		return err
	}
	return answer
}
