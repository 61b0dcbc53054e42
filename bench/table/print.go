package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// printGoals prints what was reached, and returns how many goals have no figure.
func printGoals(out io.Writer, r *results, goals []goal) (missing int) {
	fmt.Fprintln(out, "### Goals")
	fmt.Fprintln(out)
	row(out, "work", "figure", "ours", "beside", "measured", "goal", "the floor", "")
	row(out, "---", "---", "---", "---", "---:", "---", "---:", "---")
	for _, g := range goals {
		m, err := g.measure(r, ours)
		if err != nil {
			missing++
			row(out, g.work, g.figure, m.from, m.against, "—", g.wanted(), "", "no figure: "+err.Error())
			continue
		}
		least, says := "", verdict(g, m)
		if floor, measured := g.floorOf(r); measured {
			least = number(floor.figure)
			if ok, _ := g.reached(m); !ok && verdict(g, floor) != "met" {
				says = "the floor forbids it"
			}
		}
		row(out, g.work, g.figure, m.from, m.against, number(m.figure), g.wanted(), least, says)
	}
	return missing
}

func verdict(g goal, m measured) string {
	ok, by := g.reached(m)
	switch {
	case ok:
		return "met"
	case math.IsInf(by, 0) || math.IsNaN(by):
		return "**missed** by " + number(math.Abs(m.figure-g.limit))
	case by >= 2:
		return fmt.Sprintf("**missed** by a factor of %s", number(m.figure/g.limit))
	default:
		return fmt.Sprintf("**missed** by %.0f %%", max(1, math.Round(100*by)))
	}
}

// printFigures prints a table for each benchmark: a row for each case and implementation, and how
// it is to ours.
func printFigures(out io.Writer, r *results) {
	var benches []string
	for _, l := range r.lines {
		if !slices.Contains(benches, l.bench) {
			benches = append(benches, l.bench)
		}
	}
	for _, bench := range benches {
		fmt.Fprintf(out, "### %s\n\n", bench)
		units := slices.DeleteFunc(slices.Clone(r.units[bench]), func(u string) bool { return u == perOp })
		timed := len(units) < len(r.units[bench])
		head := []string{"case", "impl"}
		if timed {
			head = append(head, "time", "× ours")
		}
		row(out, append(head, units...)...)
		row(out, slices.Repeat([]string{"---"}, len(head)+len(units))...)
		for _, name := range cases(r, bench) {
			for _, l := range r.lines {
				if l.bench == bench && l.name == name {
					row(out, figures(r, l, timed, units)...)
				}
			}
		}
		fmt.Fprintln(out)
	}
}

// cases are those of a benchmark, in the order of the input.
func cases(r *results, bench string) (names []string) {
	for _, l := range r.lines {
		if l.bench == bench && !slices.Contains(names, l.name) {
			names = append(names, l.name)
		}
	}
	return names
}

func figures(r *results, l line, timed bool, units []string) []string {
	cells := []string{l.name, l.impl}
	if timed {
		cells = append(cells, "", "")
		if t, err := r.median(l, perOp); err == nil {
			cells[2] = duration(t)
			if mine, err := r.median(line{l.bench, ours, l.name}, perOp); err == nil && mine > 0 {
				cells[3] = number(t / mine)
			}
		}
	}
	for _, unit := range units {
		text := ""
		if v, err := r.median(l, unit); err == nil {
			text = number(v)
		}
		cells = append(cells, text)
	}
	return cells
}

func row(out io.Writer, cells ...string) {
	fmt.Fprintf(out, "| %s |\n", strings.Join(cells, " | "))
}

// number is v with three digits that count.
func number(v float64) string {
	if a := math.Abs(v); a == 0 || a >= 100 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// duration is a time in nanoseconds with three digits that count.
func duration(ns float64) string {
	switch {
	case ns >= 1e9:
		return number(ns/1e9) + " s"
	case ns >= 1e6:
		return number(ns/1e6) + " ms"
	case ns >= 1e3:
		return number(ns/1e3) + " µs"
	default:
		return number(ns) + " ns"
	}
}
