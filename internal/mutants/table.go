package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"
)

// A result is what came of trying a mutant.
type result struct {
	took time.Duration
	err  error
}

// tryAll tries the mutants, as many at a time as there are processors: to build one is for the most part one thing after the other.
func tryAll(ctx context.Context, l *lab, mutants []mutant) []<-chan result {
	results := make([]<-chan result, len(mutants))
	next := make(chan func(), len(mutants)) // in their order
	for i, m := range mutants {
		done := make(chan result, 1)
		results[i] = done
		next <- func() {
			took, err := l.try(ctx, m)
			done <- result{took, err}
		}
	}
	close(next)
	for range runtime.GOMAXPROCS(0) {
		go func() {
			for try := range next {
				try()
			}
		}()
	}
	return results
}

// report tries the mutants and prints a line for each. It returns an error that says why those that were not found out were not,
// if there is any of them.
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
	results := tryAll(ctx, l, mutants)
	for i, m := range mutants {
		r := <-results[i]
		caught := "yes"
		if r.err != nil {
			caught = "NO"
			errs = append(errs, fmt.Errorf("%s: %w", m.name, r.err))
		}
		rules[m.rule] = true
		row(append(m.cells(), fmt.Sprintf("%.1f", r.took.Seconds()), caught)...)
	}
	if ctx.Err() != nil {
		return ctx.Err() // of which all the rest comes
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
