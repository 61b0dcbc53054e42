package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The pictures belong to the newest figures: they are drawn from the pages that have them.
func TestCharts_areThoseOfTheNewestReport(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	require.NoError(t, run(out, defaultPages("../../docs")))
	for _, c := range charts {
		want, err := os.ReadFile(filepath.Join(out, c.file))
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join("../../docs/pictures", c.file))
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), "%s: draw it anew by: cd bench && go run ./charts", c.file)
	}
	page, err := os.ReadFile("../../docs/performance.md")
	require.NoError(t, err)
	newest := regexp.MustCompile(`newest\s+report\]\(([^)]*)\)`).FindSubmatch(page)
	require.NotNil(t, newest)
	require.Equal(t, filepath.Base(defaultPages("../../docs")[0]), filepath.Base(string(newest[1])), "docs/performance.md links to the newest report")
}

const report = `
### Uncontended

| case | impl | time |
| --- | --- | --- |
| g=1 | onerun | 1.5 ms |
| g=1 | redsync | 170 µs |
| g=1 | redislock | 220 µs |
| g=1 | rueidislock | 212 µs |
| g=1 | raw | 175 µs |
| g=1/pipeline=256 | raw | 5 µs |

### Contended

| case | impl | time |
| --- | --- | --- |
| g=1 | onerun | 4 µs |
`

func write(t *testing.T, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "report.md")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// A report of one's own is drawn as far as it goes.
func TestCharts_drawWhatBenchTablePrints(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	require.NoError(t, run(out, []string{write(t, report)}))
	svg, err := os.ReadFile(filepath.Join(out, "callers.svg"))
	require.NoError(t, err)
	require.Contains(t, string(svg), "rueidislock")
	require.NoFileExists(t, filepath.Join(out, "waiters.svg"))

	rows := tableBelow(report, []string{"Uncontended"}, "time")
	require.Len(t, rows, 6)
	points, err := byCase("g", "time")(rows, series{column: "onerun"})
	require.NoError(t, err)
	require.Equal(t, [2]float64{1, 1500}, [2]float64{points[0].X, points[0].Y})
	points, err = byCase("g", "time")(rows, series{column: "raw"})
	require.NoError(t, err)
	require.Len(t, points, 1, "a pipeline is no caller")
}

// The bar of a store is the share of its rounds.
func TestCharts_drawBars(t *testing.T) {
	t.Parallel()
	const table = "## What a failover forgets\n\n| store | rounds | leases forgotten |\n|---|---|---|\n| one `Redis` | 40 | %s |\n| etcd | 200 | 0 |\n"
	out := t.TempDir()
	require.NoError(t, run(out, []string{write(t, fmt.Sprintf(table, "17"))}))
	svg, err := os.ReadFile(filepath.Join(out, "failover.svg"))
	require.NoError(t, err)
	for _, text := range []string{">one Redis", ">etcd", "> 42.5<", "> 0<"} {
		require.Contains(t, string(svg), text)
	}
	require.ErrorContains(t, run(out, []string{write(t, fmt.Sprintf(table, "most"))}), `"most" is no number`)
}

func TestCharts_refuseATableThatLacksFigures(t *testing.T) {
	t.Parallel()
	for text, says := range map[string]string{
		"no table": "none of the pages has a table",
		strings.Replace(report, "170 µs", "fast", 1):       `"fast" is no number`,
		strings.ReplaceAll(report, "redislock", "another"): "no figures of redislock",
	} {
		require.ErrorContains(t, run(t.TempDir(), []string{write(t, text)}), says)
	}
	require.Error(t, run(t.TempDir(), []string{filepath.Join(t.TempDir(), "none.md")}))
}

func TestAmount_ofARangeIsItsMiddle(t *testing.T) {
	t.Parallel()
	for cell, want := range map[string]float64{"0.9 to 1.2 s": 1.05, "1.6 s": 1.6, "12 µs": 12, "2 ms": 2000, "43,057": 43057} {
		got, err := amount(cell)
		require.NoError(t, err)
		require.InDelta(t, want, got, 1e-9, cell)
	}
}
