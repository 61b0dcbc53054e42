package failover_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/verify/history"
	"github.com/seed-1795987d/onerun/internal/verify/page"
)

// docs is the page with the table.
var docs = page.Page{Name: "../../../docs/reliability.md", Target: "failover"}

// table returns the table of the stores that were tried.
func table(found []result) string {
	var b strings.Builder
	b.WriteString("| store | rounds | leases forgotten | seconds without a grant: median | maximum | fences that did not grow |\n" +
		"|---|---|---|---|---|---|\n")
	for i, s := range stores {
		if r := found[i]; r.rounds > 0 {
			fmt.Fprintf(&b, "| %s | %d | %d | %.2f | %.2f | %d |\n", s.name, r.rounds, r.forgotten,
				history.Percentile(r.away, 0.5).Seconds(), history.Percentile(r.away, 1).Seconds(), r.backwards)
		}
	}
	return b.String()
}

// report prints the table, and writes it into the page if it is asked for.
func report(t *testing.T, found []result) {
	fmt.Print(table(found))
	if os.Getenv(markdownEnv) == "" {
		return
	}
	measured := fmt.Sprintf("Measured on %s, on %s with %d processors.\n", time.Now().UTC().Format(time.DateOnly), processor(), runtime.NumCPU())
	require.NoError(t, docs.SetPart("failover", measured+"\n"+table(found)))
}

// processor returns the name of the processor.
func processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// Each row of the page is that of a store.
func TestReport_hasTheseStores(t *testing.T) {
	t.Parallel()
	part, err := docs.Part("failover")
	require.NoError(t, err)
	for _, s := range stores {
		require.Contains(t, part, "| "+s.name+" |", "go run ./internal/verify/cmd/proof failover -md")
	}
}
