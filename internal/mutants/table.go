package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// report tries the mutants one after the other and prints a line for each, and at last why those that were not found out were
// not. It returns an error if there is any of them.
func report(ctx context.Context, w io.Writer, l *lab, mutants []mutant) error {
	start := time.Now()
	columns := widths(mutants)
	row := func(cells ...string) {
		var line strings.Builder
		for i, cell := range cells {
			fmt.Fprintf(&line, "%-*s  ", columns[i], cell)
		}
		fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
	}
	row(head...)
	var errs []error
	rules := map[int]bool{}
	for _, m := range mutants {
		took, err := l.try(ctx, m)
		caught := "yes"
		if err != nil {
			caught = "NO"
			errs = append(errs, fmt.Errorf("%s: %w", m.name, err))
		}
		rules[m.rule] = true
		row(append(m.cells(), fmt.Sprintf("%.1f", took.Seconds()), caught)...)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	fmt.Fprintf(w, "%d of %d mutants, of %d rules, were caught; all in all it took %v\n",
		len(mutants)-len(errs), len(mutants), len(rules), time.Since(start).Round(time.Second))
	return errors.Join(errs...)
}

var head = []string{"mutant", "rule", "what is wrong", "found out by", "seconds", "caught"}

// cells are what is known of a mutant beforehand.
func (m mutant) cells() []string {
	return []string{m.name, fmt.Sprint(m.rule), m.does, m.pkg + " " + m.test}
}

func widths(mutants []mutant) []int {
	columns := make([]int, len(head))
	for i, cell := range head {
		columns[i] = len(cell)
	}
	for _, m := range mutants {
		for i, cell := range m.cells() {
			columns[i] = max(columns[i], len([]rune(cell)))
		}
	}
	return columns
}
