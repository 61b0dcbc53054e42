package faults_test

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-1795987d/onerun/internal/verify/history"
)

// A report is the results of all rows.
type report struct {
	mu      sync.Mutex
	results []*result
}

func (p *report) add(r *result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.results = append(p.results, r)
}

// print writes the tables, in Markdown.
func (p *report) print(w io.Writer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	slices.SortStableFunc(p.results, func(a, b *result) int {
		if a.row.number != b.row.number {
			return a.row.number - b.row.number
		}
		return strings.Compare(a.row.name+a.backend, b.row.name+b.backend)
	})
	fmt.Fprintf(w, "Times in ms, TTL %v. Lateness is that of the context's end behind the local deadline: net of the time for which the process did not run, and gross (max). "+
		"Takeovers are those by clients that waited. \"window\" marks faults that leases cannot prevent.\n\n", ttl)
	fmt.Fprintln(w, "| # | fault | backend | beliefs | overlaps (worst) | stale writes offered / refused / accepted | lateness p50 / p99 / max (gross) | takeover p50 / max | leaks | porcupine | seen by |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|---|---|---|---|")
	for _, r := range p.results {
		fmt.Fprintln(w, r)
	}
	fmt.Fprintln(w, "\nThat the faults were in force:")
	for _, r := range p.results {
		fmt.Fprintf(w, "- %d %s, %s: %s\n", r.row.number, r.row.name, r.backend, strings.Join(r.proofs, "; "))
	}
	for _, r := range p.results {
		for _, failure := range r.failures {
			fmt.Fprintf(w, "\nFAILED: %d %s, %s: %s\n", r.row.number, r.row.name, r.backend, failure)
		}
	}
}

// String is the line of the table.
func (r *result) String() string {
	overlaps := "0"
	if n := len(r.overlaps); n > 0 {
		var longest time.Duration
		for _, o := range r.overlaps {
			longest = max(longest, o.For)
		}
		overlaps = fmt.Sprintf("%d (%s)", n, ms(longest))
	}
	if r.row.window {
		overlaps += " window"
	}
	late := "–"
	if len(r.late) > 0 {
		net := nets(r.late)
		late = fmt.Sprintf("%s / %s / %s (%s) of %d", ms(history.Percentile(net, 0.5)), ms(history.Percentile(net, 0.99)), ms(history.Percentile(net, 1)),
			ms(history.Percentile(grosses(r.late), 1)), len(net))
	}
	takeover := "–"
	if len(r.takeover) > 0 {
		var gross []time.Duration
		for _, one := range r.takeover {
			gross = append(gross, one.Gross)
		}
		takeover = fmt.Sprintf("%s / %s", ms(history.Percentile(gross, 0.5)), ms(history.Percentile(gross, 1)))
	}
	shown := strings.ReplaceAll(r.shown, "|", "\\|")
	if shown != "" && !strings.HasPrefix(shown, "none") {
		shown = "`" + shown + "`"
	}
	state := ""
	if len(r.failures) > 0 {
		state = " **FAILED**"
	}
	return fmt.Sprintf("| %d | %s%s | %s | %d | %s | %d / %d / %d | %s | %s | %d | %s | %s |", r.row.number, r.row.name, state, r.backend, r.beliefs, overlaps,
		r.writes.Stale(), r.writes.Refused, r.writes.StaleAccepted, late, takeover, len(r.leaks), r.verdict, shown)
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d)/float64(time.Millisecond)) }
