package browser_test

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	// requireEnv turns a left-out test into a failed one.
	requireEnv = "ONERUN_REQUIRE_CHROMIUM"
	// patience is how long a test may take: test machines stall.
	patience = 10 * time.Minute
)

// A tab is a tab of a browser of its own, which collects what the browser complains about.
type tab struct {
	*testing.T
	ctx    context.Context
	origin string // the requests of the page must not leave it

	mu         sync.Mutex
	complaints []string
}

// programs are the names of Chromium: Debian's, Ubuntu's, and that of Google's build.
var programs = []string{"chromium", "chromium-browser", "google-chrome"}

// findChromium returns the path of the browser. If there is none, the test is left out, or fails if
// ONERUN_REQUIRE_CHROMIUM is set to anything.
func findChromium(t *testing.T) string {
	t.Helper()
	for _, name := range programs {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	const remedy = "apt-get install chromium, or run make tools"
	leftout.Unless(t, requireEnv, errors.New("there is no chromium"), "Chromium", remedy)
	return ""
}

// openTab starts a browser. It is closed when the test ends.
func openTab(t *testing.T, origin string) *tab {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(findChromium(t)), chromedp.DisableGPU,
	)
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium refuses to start as root otherwise
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	ctx, cancelBrowser := chromedp.NewExecAllocator(ctx, options...)
	ctx, _ = chromedp.NewContext(ctx)
	b := &tab{T: t, ctx: ctx, origin: origin}
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // it waits until the browser has ended
		cancelBrowser()
		cancel()
	})
	require.NoError(t, chromedp.Listen(ctx, b.listen))
	_, err := chromedp.Call(ctx, log.Enable, cdp.Empty{})
	require.NoError(t, err)
	return b
}

// do runs actions in the tab.
func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	require.NoError(b, chromedp.Do(b.ctx, actions...))
}

// evaluate returns the value of an expression in the page.
func evaluate[T any](b *tab, expression string) T {
	b.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	require.NoError(b, err, expression)
	return value
}

// listen collects errors of scripts, what is written to the console (violations of the
// Content-Security-Policy among it), and requests that fail or go elsewhere.
func (b *tab) listen(event any) {
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		thrown := &chromedp.ExceptionError{ExceptionDetails: e.ExceptionDetails}
		b.complain("script: " + thrown.Error())
	case *runtime.EventConsoleAPICalled:
		b.complain(fmt.Sprintf("console: %s %s", e.Type, e.Args[0].Value))
	case *log.EventEntryAdded:
		b.complain(fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL))
	case *page.EventJavascriptDialogOpening:
		b.complain("dialog: " + e.Message)
		go func() { _, _ = chromedp.Call(b.ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{}) }()
	case *network.EventRequestWillBeSent:
		if !strings.HasPrefix(e.Request.URL, b.origin) {
			b.complain("request to " + e.Request.URL)
		}
	case *network.EventLoadingFailed:
		b.complain("loading failed: " + e.ErrorText)
	}
}

func (b *tab) complain(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.complaints = append(b.complaints, text)
}

// takeComplaints returns the complaints since the last call.
func (b *tab) takeComplaints() []string {
	b.Helper()
	evaluate[int](b, "0") // what the page has caused comes before the answer
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.complaints
	b.complaints = nil
	return all
}

// open opens a page, and fails the test if it has another status.
func (b *tab) open(url string, status int64) {
	b.Helper()
	answer, err := chromedp.Run(b.ctx, chromedp.NavigateResponse(url))
	require.NoError(b, err)
	require.Equal(b, status, answer.Status, url)
}

// follow does something that leads to another page, and waits for that.
func (b *tab) follow(actions ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	answer, err := chromedp.RunResponse(b.ctx, actions...)
	require.NoError(b, err)
	require.Equal(b, int64(200), answer.Status)
}

// clickLink clicks on the link that XPath finds.
func (b *tab) clickLink(xpath string) {
	b.Helper()
	b.follow(chromedp.Click(chromedp.Search(xpath)))
}

// see waits until the page shows a text.
func (b *tab) see(text string) {
	b.Helper()
	at := fmt.Sprintf(`//main//*[contains(normalize-space(), %q)]`, text)
	b.do(chromedp.WaitVisible(chromedp.Search(at)))
}

// A device is a screen.
type device struct {
	name          string
	width, height int64
	scale         float64
	mobile        bool
}

var (
	desktop = device{"desktop", 1000, 700, 1, false}
	phone   = device{"phone", 375, 700, 1, true}
)

// use has the tab take a screen, and a mode, "light" or "dark".
func (b *tab) use(d device, mode string) {
	b.Helper()
	screen := emulation.SetDeviceMetricsOverrideParams{
		Width: d.width, Height: d.height, DeviceScaleFactor: d.scale, Mobile: d.mobile,
		ScreenWidth: d.width, ScreenHeight: d.height,
	}
	_, err := chromedp.Call(b.ctx, emulation.SetDeviceMetricsOverride, screen)
	require.NoError(b, err)
	_, err = chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: mode}},
	})
	require.NoError(b, err)
}

//go:embed checks.js
var checks string

// problems returns what is wrong with the page that is open.
func (b *tab) problems() []string {
	b.Helper()
	return evaluate[[]string](b, checks)
}
