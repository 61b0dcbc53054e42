package page_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/verify/page"
)

func TestPage_writesOnlyThePart(t *testing.T) {
	p := page.Page{Name: filepath.Join(t.TempDir(), "page.md"), Target: "bread"}
	const text = "# Page\n\n<!-- a: written by proof bread -->\nold\n<!-- end of a -->\n\nold\n"
	require.NoError(t, os.WriteFile(p.Name, []byte(text), 0o600))
	require.NoError(t, p.SetPart("a", "new\nlines\n"))
	part, err := p.Part("a")
	require.NoError(t, err)
	require.Equal(t, "new\nlines\n", part)
	now, err := os.ReadFile(p.Name)
	require.NoError(t, err)
	require.Equal(t, "# Page\n\n<!-- a: written by proof bread -->\nnew\nlines\n<!-- end of a -->\n\nold\n", string(now))
	require.Error(t, p.SetPart("b", ""), "there is no such part")
}
