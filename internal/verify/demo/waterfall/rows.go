package main

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/seed-1795987d/onerun/internal/verify/demo/spans"
)

// A row is one line of the picture: a span, or the heading of a trace.
type row struct {
	heading string      // of a trace, or ""
	span    *spans.Span // nil for a heading
	depth   int
}

// around returns the spans of the traces whose ID begins so, and of those that a link joins to
// them.
func around(all []spans.Span, id string) (some []spans.Span) {
	wanted := map[string]bool{}
	for _, s := range all {
		mine := strings.HasPrefix(s.Trace, id)
		if mine {
			wanted[s.Trace] = true
		}
		for _, l := range s.Links {
			if mine {
				wanted[l.Trace] = true
			}
			if strings.HasPrefix(l.Trace, id) {
				wanted[s.Trace] = true
			}
		}
	}
	for _, s := range all {
		if wanted[s.Trace] {
			some = append(some, s)
		}
	}
	return some
}

// rowsOf puts the spans below their parents, trace by trace, as they began.
func rowsOf(all []spans.Span) (rows []row) {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b spans.Span) int { return cmp.Or(a.Start.Compare(b.Start), b.End.Compare(a.End)) })
	known := map[string]bool{}
	for _, s := range all {
		known[s.Trace+s.ID] = true
	}
	// by trace and parent; by trace if the parent is not in the file
	below := map[string][]*spans.Span{}
	var traces []string
	for i, s := range all {
		parent := s.Trace + s.Parent
		if !known[parent] {
			parent = s.Trace
		}
		below[parent] = append(below[parent], &all[i])
		if !slices.Contains(traces, s.Trace) {
			traces = append(traces, s.Trace)
		}
	}
	var add func(s *spans.Span, depth int)
	add = func(s *spans.Span, depth int) {
		rows = append(rows, row{span: s, depth: depth})
		for _, child := range below[s.Trace+s.ID] {
			add(child, depth+1)
		}
	}
	for _, trace := range traces {
		roots := below[trace]
		if len(roots) == 0 { // its spans are each other's parents
			continue
		}
		rows = append(rows, row{heading: strings.TrimSuffix("trace "+trace[:8]+" · "+roots[0].Where, " · ")})
		for _, root := range roots {
			add(root, 0)
		}
	}
	return rows
}

// took returns when the first span of the rows begins, and how long after it the last one ends.
func took(rows []row) (begin time.Time, all time.Duration) {
	var end time.Time
	for _, r := range rows {
		if r.span == nil {
			continue
		}
		if begin.IsZero() || r.span.Start.Before(begin) {
			begin = r.span.Start
		}
		if r.span.End.After(end) {
			end = r.span.End
		}
	}
	return begin, max(end.Sub(begin), time.Microsecond)
}

// step returns the time between two ticks of an axis: 1, 2 or 5 times a power of ten.
func step(all time.Duration) time.Duration {
	const maxTicks = 7
	for every := time.Nanosecond; ; every *= 10 {
		for _, n := range []time.Duration{every, 2 * every, 5 * every} {
			if all/n < maxTicks {
				return n
			}
		}
	}
}

// brief writes a time in three digits, or in seconds from a minute on.
func brief(d time.Duration) string {
	if d >= time.Minute {
		return d.Round(time.Second).String()
	}
	for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		if d >= unit {
			digits := unit / 1000
			for n := d / unit; n >= 10; n /= 10 {
				digits *= 10
			}
			d = d.Round(10 * digits)
			break
		}
	}
	text := d.String()
	at := strings.IndexFunc(text, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
	return text[:at] + " " + text[at:]
}
