package processtest

import (
	"strings"
	"sync"
)

// text is what a process has written. It keeps all of it, so that the process never waits for a
// reader.
type text struct {
	more chan struct{} // has something if there may be a line that was not returned

	mu   sync.Mutex
	all  strings.Builder
	read int // how much of it were lines that were returned
}

func newText() *text { return &text{more: make(chan struct{}, 1)} }

func (t *text) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case t.more <- struct{}{}:
	default:
	}
	return t.all.Write(p)
}

// line returns the next line, once it is whole.
func (t *text) line() (line string, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	line, _, ok = strings.Cut(t.all.String()[t.read:], "\n")
	if ok {
		t.read += len(line) + 1
	}
	return line, ok
}

func (t *text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all.String()
}
