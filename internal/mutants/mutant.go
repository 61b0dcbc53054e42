package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A mutant is one rule of the design, section 4, broken.
type mutant struct {
	name  string // also its build tag
	rule  int
	does  string // what is wrong with it
	hunks []hunk
	pkg   string // the folder of the test that has to find out
	test  string // that test, or a subtest as go test prints it
}

// A hunk is a text that has to be in a file exactly once, and what to put in its place.
type hunk struct{ file, found, put string }

// all returns every mutant, in the order of the rules.
func all() []mutant { return slices.Concat(safety, fences, waiting, cost, manners) }

// choose returns the mutants of these names, all if there are none.
func choose(names []string) ([]mutant, error) {
	if len(names) == 0 {
		return all(), nil
	}
	var chosen []mutant
	for _, name := range names {
		i := slices.IndexFunc(all(), func(m mutant) bool { return m.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no mutant %q", name)
		}
		chosen = append(chosen, all()[i])
	}
	return chosen, nil
}

// apply returns what the files that m changes are to be, by their path below root.
func (m mutant) apply(root string) (map[string]string, error) {
	changed := map[string]string{}
	for _, h := range m.hunks {
		text, ok := changed[h.file]
		if !ok {
			source, err := os.ReadFile(filepath.Join(root, h.file))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", m.name, err)
			}
			text = string(source)
		}
		if n := strings.Count(text, h.found); n != 1 {
			return nil, fmt.Errorf("%s: %s: what it changes is there %d times and not once:\n%s", m.name, h.file, n, h.found)
		}
		changed[h.file] = strings.Replace(text, h.found, h.put, 1)
	}
	return changed, nil
}
