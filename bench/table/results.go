package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"golang.org/x/perf/benchfmt"
)

// A line is what was measured of one implementation in one case of a benchmark: Uncontended,
// onerun, "g=64".
type line struct{ bench, impl, name string }

func (l line) String() string {
	return strings.TrimSuffix(fmt.Sprintf("Benchmark%s/impl=%s/%s", l.bench, l.impl, l.name), "/")
}

// results are the values of each unit, one for each time that the benchmark was run.
type results struct {
	lines  []line // in the order of the input
	units  map[string][]string
	values map[line]map[string][]float64
}

// read fails if there is nothing to be read, or something that is not what go test prints of a
// benchmark. Benchmarks that compare no implementations are left out.
func read(in io.Reader) (*results, error) {
	r := &results{units: map[string][]string{}, values: map[line]map[string][]float64{}}
	input := benchfmt.NewReader(in, "standard input")
	for input.Scan() {
		switch record := input.Result().(type) {
		case *benchfmt.Result:
			if l, ok := parseName(record.Name); ok {
				r.add(l, record.Values)
			}
		case *benchfmt.SyntaxError:
			return nil, record
		}
	}
	if err := input.Err(); err != nil {
		return nil, err
	}
	if len(r.lines) == 0 {
		return nil, errors.New("there are no results of benchmarks that compare implementations")
	}
	return r, nil
}

// parseName finds the implementation in the name of a benchmark. Its case is the rest, without the
// number of processors.
func parseName(name benchfmt.Name) (line, bool) {
	base, parts := name.Parts()
	l := line{bench: string(base)}
	var rest []string
	for _, part := range parts {
		text := string(part)
		switch impl, ok := strings.CutPrefix(text, "/impl="); {
		case ok:
			l.impl = impl
		case strings.HasPrefix(text, "/"):
			rest = append(rest, text[1:])
		}
	}
	l.name = strings.Join(rest, "/")
	return l, l.impl != ""
}

func (r *results) add(l line, values []benchfmt.Value) {
	if r.values[l] == nil {
		r.values[l] = map[string][]float64{}
		r.lines = append(r.lines, l)
	}
	for _, v := range values {
		value, unit := v.Value, v.Unit
		if v.OrigUnit != "" { // as it was printed: ns/op, and not sec/op
			value, unit = v.OrigValue, v.OrigUnit
		}
		r.values[l][unit] = append(r.values[l][unit], value)
		if !slices.Contains(r.units[l.bench], unit) {
			r.units[l.bench] = append(r.units[l.bench], unit)
		}
	}
}

// A missingError says what was not in the input.
type missingError struct {
	line line
	unit string
}

func (e *missingError) Error() string { return fmt.Sprintf("no %s of %s", e.unit, e.line) }

// median returns the median of the values, of an even number the mean of the two in the middle, or
// a *missingError.
func (r *results) median(l line, unit string) (float64, error) {
	values := slices.Sorted(slices.Values(r.values[l][unit]))
	n := len(values)
	if n == 0 {
		return 0, &missingError{l, unit}
	}
	return (values[(n-1)/2] + values[n/2]) / 2, nil
}
