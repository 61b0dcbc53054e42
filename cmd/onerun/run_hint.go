//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"slices"

	"golang.org/x/term"

	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/inspect"
)

// hintElsewhere looks for the keys under other namespaces, beside the run, and says where somebody
// holds one: such a holder does not keep this run out. It scans the store for a second at most, so
// it does that only for a person at a terminal. wait waits for the end of the search.
func (w *work) hintElsewhere() (wait func()) {
	if !term.IsTerminal(int(os.Stderr.Fd())) {
		return func() {}
	}
	i, err := inspect.New(w.locks)
	if err != nil {
		return func() {}
	}
	searched := make(chan struct{})
	go func() {
		defer close(searched)
		for _, key := range w.run.Keys {
			held := slices.DeleteFunc(elsewhere(context.Background(), i, key), func(p placeView) bool {
				return p.State != string(driver.KeyHeld)
			})
			if len(held) > 0 {
				text := fmt.Sprintf("%q of this run is another key%s", key, hintsOf(held))
				message{Outcome: "warning", Keys: []string{key}, Text: text}.print(os.Stderr, w.globals.JSON)
			}
		}
	}()
	return func() { <-searched }
}
