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

// A result is the outcome of trying a mutant.
type result struct {
	took time.Duration
	err  error
}

// tryAll tries the mutants, as many at a time as there are processors, because most of a build
// runs on one processor.
func tryAll(ctx context.Context, l *lab, mutants []mutant) []<-chan result {
	results := make([]<-chan result, len(mutants))
	next := make(chan func(), len(mutants)) // in the order of the table
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

// report tries the mutants and prints a line for each. Its error gives the reason for each mutant
// that was not caught.
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
		return ctx.Err() // the other errors only follow from it
	}
	fmt.Fprintf(w, "%d of %d mutants, of %d rules, were caught in %v\n",
		len(mutants)-len(errs), len(mutants), len(rules), time.Since(start).Round(time.Second))
	return errors.Join(errs...)
}

var head = []string{"mutant", "rule", "defect", "detected by", "seconds", "caught"}

// cells returns the columns that are known before the run.
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
