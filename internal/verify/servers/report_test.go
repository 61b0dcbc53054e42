package servers_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	"github.com/seed-1795987d/onerun/internal/verify/page"
)

// docs is the page with the table.
var docs = page.Page{Name: "../../../docs/servers.md", Target: "servers"}

const (
	passes = "passes"
	fails  = "**fails**"
	none   = "–"
)

// A line of the table is a server and the result of each mode.
type line struct {
	server, from, day string
	results           map[string]string // by mode
}

// A report collects the lines.
type report struct {
	mu    sync.Mutex
	lines map[string]line // by server
}

func newReport() *report { return &report{lines: map[string]line{}} }

func (r *report) start(build redistest.Build, s server) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines[build.String()] = line{
		server: build.String(), from: s.from, day: time.Now().Format(time.DateOnly), results: map[string]string{},
	}
}

func (r *report) add(build redistest.Build, mode string, passed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	result := passes
	if !passed {
		result = fails
	}
	r.lines[build.String()].results[mode] = result
}

// finish compares what was tried with the table of the docs, or brings that up to date. A line of
// a server that was not there this time is kept.
func (r *report) finish(t *testing.T) {
	written, err := docs.Part("table")
	require.NoError(t, err)
	known := parse(t, written)
	if os.Getenv(reportEnv) != "" {
		for server, l := range r.lines {
			known[server] = l
		}
		require.NoError(t, docs.SetPart("modes", legend()))
		require.NoError(t, docs.SetPart("table", table(known)))
		return
	}
	for server, l := range r.lines {
		for mode, result := range l.results {
			if was := known[server].results[mode]; was != "" && was != none {
				require.Equal(t, was, result, "%s in mode %s is another in docs/servers.md: go run ./internal/verify/cmd/proof servers", server, mode)
			}
		}
	}
}

// The page must not describe modes and faults that are not tried, nor leave out one that is.
func TestReport_isOfTheseModes(t *testing.T) {
	const how = "docs/servers.md is not up to date: go run ./internal/verify/cmd/proof servers"
	described, err := docs.Part("modes")
	require.NoError(t, err)
	require.Equal(t, legend(), described, how)
	written, err := docs.Part("table")
	require.NoError(t, err)
	known := parse(t, written)
	require.Equal(t, table(known), written, how)
	all := 0
	for server, l := range known {
		for _, m := range modes {
			if m.each {
				require.Contains(t, []string{passes, fails}, l.results[m.name], "%s in mode %s: %s", server, m.name, how)
			}
		}
		if !slices.ContainsFunc(modes, func(m mode) bool { return l.results[m.name] == none }) {
			all++
		}
	}
	require.Positive(t, all, "one server has all modes")
}

// legend says what each mode is, and what happens in it.
func legend() string {
	var b strings.Builder
	fmt.Fprintln(&b, "| mode | what it is | faults |\n|---|---|---|")
	for _, m := range modes {
		var faults []string
		for _, f := range m.faults {
			faults = append(faults, f.name)
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", m.name, m.about, strings.Join(faults, "; "))
	}
	return b.String()
}

func table(all map[string]line) string {
	var b strings.Builder
	names := []string{"server", "from", "last tried"}
	for _, m := range modes {
		names = append(names, m.name)
	}
	fmt.Fprintf(&b, "| %s |\n|%s\n", strings.Join(names, " | "), strings.Repeat("---|", len(names)))
	for _, server := range sorted(all) {
		l := all[server]
		cells := []string{l.server, l.from, l.day}
		for _, m := range modes {
			result := l.results[m.name]
			if result == "" {
				result = none
			}
			cells = append(cells, result)
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
	}
	return b.String()
}

// sorted returns the servers, by name and version.
func sorted(all map[string]line) (servers []string) {
	for server := range all {
		servers = append(servers, server)
	}
	slices.Sort(servers)
	return servers
}

// parse reads a table.
func parse(t *testing.T, text string) map[string]line {
	t.Helper()
	all := map[string]line{}
	var names []string
	for row := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(row), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case names == nil:
			names = cells
		case strings.HasPrefix(cells[0], "---"):
		default:
			require.Len(t, cells, len(names), row)
			l := line{server: cells[0], from: cells[1], day: cells[2], results: map[string]string{}}
			for i := 3; i < len(cells); i++ {
				l.results[names[i]] = cells[i]
			}
			all[l.server] = l
		}
	}
	return all
}
