// Package metricspage reads deploy/metrics.md, the inventory of what is measured.
package metricspage

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// An Instrument is a line of the page. A label has the values that it can have, or none if those
// are not bounded.
type Instrument struct {
	Name, Kind, Unit, Prometheus, Answers string

	Labels  map[string][]string
	Buckets []string
}

// Read returns the instruments on the page in the file.
func Read(t testing.TB, file string) (all []Instrument) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	label := regexp.MustCompile("`(\\w+)`(?: \\(([^)]*)\\))?")
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) != 9 || !strings.HasPrefix(cells[1], " `onerun.") {
			continue
		}
		for at := range cells {
			cells[at] = strings.TrimSpace(cells[at])
		}
		i := Instrument{
			Name: strings.Trim(cells[1], "`"), Kind: cells[2], Unit: cells[3], Prometheus: strings.Trim(cells[4], "`"),
			Labels: map[string][]string{}, Buckets: strings.Fields(cells[6]), Answers: cells[7],
		}
		for _, l := range label.FindAllStringSubmatch(cells[5], -1) {
			i.Labels[l[1]] = strings.Fields(l[2])
		}
		all = append(all, i)
	}
	require.NotEmpty(t, all, "%s has no table", file)
	return all
}
