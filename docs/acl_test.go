package docs_test

import (
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// The ACL lines of the pages of the backends are lines of docs/acl.md, which a test of the backends
// runs to the letter.
func TestDocs_aclLinesAreThoseThatAreTested(t *testing.T) {
	t.Parallel()
	line := regexp.MustCompile(`(?m)^ACL .*$`)
	tested := line.FindAllString(readPage(t, "docs/acl.md"), -1)
	require.NotEmpty(t, tested)
	stores, err := filepath.Glob("docs/stores/*.md")
	require.NoError(t, err)
	found := 0
	for _, page := range stores {
		for _, l := range line.FindAllString(readPage(t, page), -1) {
			found++
			require.Contains(t, tested, l, page)
		}
	}
	require.Equal(t, 2, found, "single and reentrant have one each")
}
