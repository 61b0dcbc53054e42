package scale_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	"github.com/seed-1795987d/onerun/internal/verify/page"
)

func TestMain(m *testing.M) {
	logging.Disable() // go-redis' lines about connections that end
	redistest.VerifyNoLeaks(m)
}

// scaleEnv asks for the full form.
const scaleEnv = "ONERUN_SCALE"

func full() bool { return os.Getenv(scaleEnv) != "" }

var docs = page.Page{Name: "../../../docs/scale.md", Target: "scale"}

// show prints a table and, in the full form, writes it to the page.
func show(t *testing.T, part, table string) {
	t.Helper()
	t.Logf("%s:\n%s", part, table)
	if full() {
		require.NoError(t, docs.SetPart(part, table))
		return
	}
	written, err := docs.Part(part)
	require.NoError(t, err)
	require.Equal(t, head(table), head(written), "docs/scale.md has another table: go run ./internal/verify/cmd/proof scale")
}

// number matches a number such as 1,000.
var number = regexp.MustCompile(`[0-9][0-9,]*`)

// head returns the first line of a table, without the numbers that differ in the short form.
func head(table string) string {
	line, _, _ := strings.Cut(table, "\n")
	return number.ReplaceAllString(line, "N")
}
