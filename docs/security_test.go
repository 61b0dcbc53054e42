package docs_test

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The tests that these pages name are in the files to which they link, and each row of their tables
// has one.
func TestDocs_pagesNameTestsThatExist(t *testing.T) {
	t.Parallel()
	named := regexp.MustCompile(`\[` + "`(Test\\w+)`" + `\]\(([^)]+)\)`)
	for page, atLeast := range map[string]int{"docs/security.md": 11, "docs/what-we-lean-on.md": 13} {
		rows := 0
		for line := range strings.Lines(readPage(t, page)) {
			if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| attacker") || strings.HasPrefix(line, "| what we know") {
				continue
			}
			rows++
			tests := named.FindAllStringSubmatch(line, -1)
			require.NotEmpty(t, tests, line)
			for _, test := range tests {
				require.Contains(t, readPage(t, path.Join("docs", test[2])), "\nfunc "+test[1]+"(t *testing.T) {", test[1])
			}
		}
		require.GreaterOrEqual(t, rows, atLeast, page)
	}
}

// The pages of the adapters have the same sections in the same order. What only one of them has
// comes before the last one.
func TestDocs_pagesOfAdaptersHaveTheSameSections(t *testing.T) {
	t.Parallel()
	want := []string{
		"What it does", "Set it up", "Keys", "When the key is busy", "What is remembered", "Options", "Inside the handler", "Operate it",
	}
	own := map[string][]string{"asynq": {"Schedulers"}, "cron": {"gocron"}}
	for _, name := range []string{"http", "grpc", "asynq", "watermill", "jetstream", "river", "cron"} {
		var sections []string
		for _, row := range headingRow.FindAllString(fencedCode.ReplaceAllString(readPage(t, "docs/"+name+".md"), ""), -1) {
			if section, ok := strings.CutPrefix(strings.TrimSpace(row), "## "); ok {
				sections = append(sections, section)
			}
		}
		require.Equal(t, slices.Concat(want, own[name], []string{"What it does not promise"}), sections, name)
	}
}
