package brokers_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	"github.com/seed-1795987d/onerun/internal/verify/page"
)

const shortMessages = 6

// A table is the results of a run.
type table struct {
	leases *redistest.Server
	n      int // messages of each cell
	long   bool

	mu    sync.Mutex
	found map[string]result // by the names of the row and the fault
}

// Each broker has each fault. No message is lost, and none is handled twice, except as
// docs/watermill.md says.
func TestBrokers_loseNoMessage(t *testing.T) {
	tab := &table{leases: redistest.Start(t), n: shortMessages, found: map[string]result{}}
	if n, _ := strconv.Atoi(os.Getenv(longEnv)); n > 0 {
		tab.n, tab.long = n, true
	}
	brokers := make([]broker, len(rows)) // started before the load that they are going to have
	for i, row := range slices.Backward(rows) {
		if !row.long || tab.long {
			brokers[i] = row.start(t)
			brokers[i].link.Broker = row.name
		}
	}
	t.Run("rows", func(t *testing.T) {
		for i, row := range rows {
			if !row.long || tab.long {
				t.Run(row.name, func(t *testing.T) {
					t.Parallel()
					tab.row(t, fmt.Sprint(i), brokers[i])
				})
			}
		}
	})
	if tab.long && !t.Failed() {
		tab.report(t)
	}
}

// row runs the cells of a broker side by side. What strikes the whole server comes last, alone.
func (tab *table) row(t *testing.T, name string, b broker) {
	alone := func(f fault) bool {
		return f.name == "restart" || f.name == "running" && b.link.amqp != nil
	}
	t.Run("faults", func(t *testing.T) {
		for i, f := range faults {
			if f.possible(b) && !alone(f) {
				t.Run(f.name, func(t *testing.T) { t.Parallel(); tab.cell(t, fmt.Sprint(name, "_", i), b, f) })
			}
		}
	})
	for i, f := range faults {
		if f.possible(b) && alone(f) {
			t.Run(f.name, func(t *testing.T) { tab.cell(t, fmt.Sprint(name, "_", i), b, f) })
		}
	}
}

func (tab *table) cell(t *testing.T, name string, b broker, f fault) {
	c := &cell{t: t, fault: f, broker: b, n: tab.n, setup: setup{Link: b.link, Leases: tab.leases.Addr(), Cell: name}}
	r := c.run()
	t.Logf("%s: %s: %+v", b.link.Broker, f.name, r)
	tab.mu.Lock()
	defer tab.mu.Unlock()
	tab.found[b.link.Broker+f.name] = r
}

// Each row of the page is that of a fault.
func TestReport_hasTheseFaults(t *testing.T) {
	part, err := docs.Part("brokers")
	require.NoError(t, err)
	for _, f := range faults {
		require.Contains(t, part, "| "+f.says+" |", "go run ./internal/verify/cmd/proof brokers -md")
	}
}

// docs is the page with the table.
var docs = page.Page{Name: "../../../docs/watermill.md", Target: "brokers"}

func (tab *table) report(t *testing.T) {
	var b strings.Builder
	fmt.Fprintf(&b, "%d messages each: lost / handled twice / published twice.\n\n| fault |", tab.n)
	for _, row := range rows {
		b.WriteString(" " + row.name + " |")
	}
	b.WriteString("\n|" + strings.Repeat("---|", len(rows)+1) + "\n")
	for _, f := range faults {
		b.WriteString("| " + f.says + " |")
		for _, row := range rows {
			if r, ok := tab.found[row.name+f.name]; ok {
				fmt.Fprintf(&b, " %d / %d / %d |", r.lost, r.handledAgain, r.publishedAgain)
			} else {
				b.WriteString(" – |")
			}
		}
		b.WriteString("\n")
	}
	fmt.Print(b.String())
	if os.Getenv(markdownEnv) != "" {
		require.NoError(t, docs.SetPart("brokers", b.String()))
	}
}
