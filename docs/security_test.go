package docs_test

import (
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The tests that docs/security.md names are in the files to which it links, and each row has one.
func TestDocs_securityNamesTestsThatExist(t *testing.T) {
	t.Parallel()
	named := regexp.MustCompile(`\[` + "`(Test\\w+)`" + `\]\(([^)]+)\)`)
	rows := 0
	for line := range strings.Lines(readPage(t, "docs/security.md")) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| attacker") {
			continue
		}
		rows++
		tests := named.FindAllStringSubmatch(line, -1)
		require.NotEmpty(t, tests, line)
		for _, test := range tests {
			require.Contains(t, readPage(t, path.Join("docs", test[2])), "\nfunc "+test[1]+"(t *testing.T) {", test[1])
		}
	}
	require.Greater(t, rows, 10)
}
