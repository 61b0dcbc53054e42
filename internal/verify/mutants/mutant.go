package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A mutant breaks one rule of the design, section 4.
type mutant struct {
	name  string // also its build tag
	rule  int
	does  string // the defect
	hunks []hunk
	pkg   string // the folder of the test that must detect it
	test  string // that test, or a subtest as go test prints it
}

// A hunk is a text that must occur exactly once in a file, and its replacement.
type hunk struct{ file, found, put string }

// all returns every mutant, in the order of the rules.
func all() []mutant {
	return slices.Concat(safety, fences, waiting, cost, manners, sharing, operating, sql)
}

// choose returns the mutants with these names, or all if there are none.
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

// apply returns the changed text of each file that m changes, by its path below root.
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
			return nil, fmt.Errorf("%s: %s: the text to replace occurs %d times instead of once:\n%s", m.name, h.file, n, h.found)
		}
		changed[h.file] = strings.Replace(text, h.found, h.put, 1)
	}
	return changed, nil
}
