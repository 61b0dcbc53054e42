package browser_test

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

const (
	// writeEnv has the pictures written into the docs.
	writeEnv = "ONERUN_SCREENSHOTS"
	docs     = "../../../docs"
	// maxBytes is how large the pictures may be together: they are part of each clone.
	maxBytes = 400 << 10
)

// A picture is a view on a screen, in a mode.
type picture struct {
	file, path, mode string
	screen           device
}

var (
	wide   = device{width: 1000, height: 560, scale: 1}
	narrow = device{width: 375, height: 620, scale: 1.5, mobile: true}
)

var pictures = []picture{
	{"page-light.png", "", "light", wide},
	{"page-dark.png", "job?name=nightly+report", "dark", wide},
	{"page-phone.png", "key?k=nightly-report", "light", narrow},
}

// The pictures of docs/operate.md can be taken. proof screenshots writes them.
func TestScreenshots_ofTheDocs(t *testing.T) {
	s := newSite(t)
	b := openTab(t, s.url)
	total := 0
	for _, p := range pictures {
		b.use(p.screen, p.mode)
		b.open(s.url+p.path, http.StatusOK)
		png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
		require.NoError(t, err)
		name := filepath.Join(docs, p.file)
		if os.Getenv(writeEnv) != "" {
			require.NoError(t, os.WriteFile(name, png, 0o600))
		}
		require.FileExists(t, name)
		total += len(png)
	}
	require.Positive(t, total)
	require.Less(t, total, maxBytes)
}
