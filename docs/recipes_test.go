package docs_test

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
)

// A recipe is a call that a page or an Example shows, with a window (WithOnce, --once).
type recipe struct {
	key    string // as it is written; "" if the reader has to find one
	window time.Duration
	per    bool // WithOncePer: the window is the period of the schedule
}

// ticks is how many ticks of a schedule a recipe is tried for, and works is how long its runs take.
const ticks = 14

var works = []time.Duration{50 * time.Millisecond, 5 * time.Minute}

// What a page recommends for a schedule runs at each tick. The window counts from the end of the
// run, so a window as long as the period skipped every second tick. A new wrong recipe is found on
// any page, in any Example, and in the comments of any package.
func TestRecipes_runAtEachTick(t *testing.T) {
	t.Parallel()
	found := 0
	for _, path := range recipeFiles(t) {
		for _, r := range recipesOf(path, readPage(t, path)) {
			if r.namesOnePieceOfWork() {
				continue
			}
			found++
			for _, work := range works {
				require.Equal(t, ticks, runsOf(t, r, work),
					"%s: the runs of %s at %d ticks, one per %v, if a run takes %v; see Choose a window in docs/options.md",
					path, r, ticks, r.period(), work)
			}
		}
	}
	require.Greater(t, found, 20, "they were found")
}

// The test above can fail: these are recipes of all forms, right and wrong.
func TestRecipes_ofAllFormsAreTried(t *testing.T) {
	t.Parallel()
	const wrong, right = false, true
	for text, want := range map[string]bool{
		"| once a day | `… guard.WithOnce(24*time.Hour)` | |":                                        wrong,
		"`onerun run --once 24h backup -- ./backup.sh`":                                              wrong,
		"0 * * * * onerun run -E 0 --once=1h ns backup -- ./backup.sh":                               wrong,
		"| `--once 24h` | does not run again for that long |":                                        wrong,
		"```go\nerr = g.Do(ctx, \"backup\", f, guard.WithOnce(24*time.Hour))\n```":                   wrong,
		"```go\ng.Do(t.Context(), key, func() {\n\tf(\")\")\n}, guard.WithOnce(time.Hour))\n```":     wrong,
		"```go\nx, err := guard.DoValue(ctx, g, \"backup\", f, guard.WithOnce(time.Hour))\n```":      wrong,
		"```go\nrun, err := g.Wrap(\"backup\", f, guard.WithOnce(7*24*time.Hour))\n```":              wrong,
		"```go\ng, err := guard.New(l, guard.WithOnce(24*time.Hour))\ng.Do(ctx, \"backup\", f)\n```": wrong,

		"`onerun run --once 20h backup -- ./backup.sh`":                                     right,
		"`onerun run --once 24h backup-$(date +%F) -- ./backup.sh`":                         right,
		"| once a day | `g.Do(ctx, \"backup:\"+date, f, guard.WithOnce(24*time.Hour))` | |": right,
		"```go\ng.Do(ctx, \"report:2026-11-21\", f, guard.WithOnce(24*time.Hour))\n```":     right,
		"```go\ng.Do(ctx, \"report\", f, guard.WithOncePer(24*time.Hour))\n```":             right,
		"```go\ng.Do(ctx, \"report\", f, guard.WithOncePer(time.Hour))\n```":                right,
		"```go\ng.Do(ctx, \"report\", f, guard.WithOnce(50*time.Minute))\n```":              right,
	} {
		all := recipesOf("page.md", text)
		require.Len(t, all, 1, text)
		require.False(t, all[0].namesOnePieceOfWork(), text)
		for _, work := range works {
			require.Equal(t, want, runsOf(t, all[0], work) == ticks, "%s, %v of work", text, work)
		}
	}
	for _, text := range []string{
		"```go\ng.Do(ctx, \"invoice:42\", f, guard.WithOnce(24*time.Hour))\n```",
		"```go\ng.Do(ctx, \"invoice:\"+number, f, guard.WithOnce(24*time.Hour))\n```",
	} {
		all := recipesOf("page.md", text)
		require.Len(t, all, 1, text)
		require.True(t, all[0].namesOnePieceOfWork(), text)
	}
	for _, text := range []string{
		"```go\ng.Do(ctx, \"backup\", f, guard.WithOnce(0))\n```", // off
		"```go\ng.Do(ctx, \"backup\", f, guard.WithOnce(w))\n```", // the reader finds one
		"```go\ng, err := guard.New(l, guard.WithOnce(time.Hour))\n```",
	} {
		require.Empty(t, recipesOf("page.md", text), text)
	}
}

// recipeFiles returns all pages, and the Go files that show how to use something: those with
// Examples, the example programs, and those with comments for users.
func recipeFiles(t *testing.T) (paths []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		path = filepath.ToSlash(path)
		test := strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "internal/testkit/")
		switch {
		case filepath.Ext(path) == ".md",
			filepath.Ext(path) == ".go" && (!test || strings.Contains(filepath.Base(path), "example")):
			paths = append(paths, path)
		}
		return nil
	}))
	return paths
}

var (
	fence       = regexp.MustCompile("(?m)^```.*$")
	function    = regexp.MustCompile(`(?m)^func `)
	call        = regexp.MustCompile(`\b(guard\.New|Do|DoValue|Wrap|Acquire)\(`)
	elided      = regexp.MustCompile(`… (?:guard\.)?WithOnce\(([^()]*)\)`)
	commandLine = regexp.MustCompile("--once[= ]([0-9][0-9a-z.]*)([^`\n]*)")
	dated       = regexp.MustCompile(`\d{4}-\d\d-\d\d|\b(?:date|tick)\b`)
	identified  = regexp.MustCompile(`:(?:\d|"\s*\+)`)
)

// recipesOf returns the recipes of a file. The window of a Guard is that of the calls in the same
// function or block of code.
func recipesOf(path, text string) (all []recipe) {
	blocks := function.Split(text, -1)
	if filepath.Ext(path) == ".md" {
		blocks = nil
		for i, part := range fence.Split(text, -1) {
			if i%2 == 1 { // code
				blocks = append(blocks, part)
			} else {
				blocks = append(blocks, strings.Split(part, "\n")...)
			}
		}
	}
	for _, block := range blocks {
		all = append(all, callsIn(block)...)
		for _, m := range elided.FindAllStringSubmatch(block, -1) {
			if window, ok := durationOf(m[1]); ok {
				all = append(all, recipe{window: window})
			}
		}
		for _, m := range commandLine.FindAllStringSubmatch(block, -1) {
			window, err := time.ParseDuration(m[1])
			own, _, _ := strings.Cut(m[2], " -- ")
			if err == nil && window > 0 {
				all = append(all, recipe{key: own, window: window})
			}
		}
	}
	return all
}

// callsIn returns the calls with a window in a block of code.
func callsIn(block string) (all []recipe) {
	var ofGuard time.Duration
	for _, at := range call.FindAllStringSubmatchIndex(block, -1) {
		name, args := block[at[2]:at[3]], arguments(block[at[1]:])
		window, given, per := time.Duration(0), false, false
		for _, arg := range args {
			if text, ok := strings.CutPrefix(strings.TrimPrefix(arg, "guard."), "WithOncePer("); ok {
				window, _ = durationOf(strings.TrimSuffix(text, ")"))
				given, per = true, true
			}
			if text, ok := strings.CutPrefix(strings.TrimPrefix(arg, "guard."), "WithOnce("); ok {
				window, _ = durationOf(strings.TrimSuffix(text, ")"))
				given = true
			}
		}
		index := map[string]int{"Do": 1, "DoValue": 2, "Acquire": 1}[name]
		switch {
		case name == "guard.New":
			ofGuard = window
		case index < len(args) && !given && ofGuard > 0:
			all = append(all, recipe{key: args[index], window: ofGuard})
		case index < len(args) && window > 0:
			all = append(all, recipe{args[index], window, per})
		}
	}
	return all
}

// arguments returns the arguments of a call. text begins after its opening parenthesis.
func arguments(text string) (args []string) {
	depth, from := 0, 0
	var quote rune
	for i, c := range text {
		end := false
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '`':
			quote = c
		case strings.ContainsRune("([{", c):
			depth++
		case strings.ContainsRune(")]}", c):
			depth--
			end = depth < 0
		case c == ',':
			end = depth == 0
		}
		if end {
			args = append(args, strings.TrimSpace(text[from:i]))
			from = i + 1
		}
		if depth < 0 {
			return args
		}
	}
	return args
}

var units = map[string]time.Duration{"time.Second": time.Second, "time.Minute": time.Minute, "time.Hour": time.Hour}

// durationOf returns the value of a product such as 24*time.Hour, if it is written as one.
func durationOf(text string) (_ time.Duration, ok bool) {
	n := int64(1)
	for factor := range strings.SplitSeq(text, "*") {
		factor = strings.TrimSpace(factor)
		number, err := strconv.ParseInt(factor, 10, 64)
		switch unit := units[factor]; {
		case unit != 0:
			n, ok = n*int64(unit), true
		case err == nil:
			n *= number
		default:
			return 0, false
		}
	}
	return time.Duration(n), ok
}

// option returns the option of the recipe.
func (r recipe) option() guard.Option {
	if r.per {
		return guard.WithOncePer(r.window)
	}
	return guard.WithOnce(r.window)
}

func (r recipe) String() string { return fmt.Sprintf("%q for %v", r.key, r.window) }

// namesOnePieceOfWork reports whether the key identifies work that no schedule repeats, such as
// "invoice:42".
func (r recipe) namesOnePieceOfWork() bool {
	return !dated.MatchString(r.key) && identified.MatchString(r.key)
}

// period returns that of the schedule: a day if the key has the date, and otherwise the shortest
// usual one that is not shorter than the window.
func (r recipe) period() time.Duration {
	const day = 24 * time.Hour
	if dated.MatchString(r.key) {
		return day
	}
	for _, period := range []time.Duration{time.Minute, time.Hour, day, 7 * day} {
		if r.window <= period {
			return period
		}
	}
	return r.window
}

// runsOf returns how often the work runs at the ticks of its schedule. Two replicas have the
// schedule, and their clocks differ by two seconds.
func runsOf(t *testing.T, r recipe, work time.Duration) int {
	t.Helper()
	if work >= r.period() {
		return ticks
	}
	var runs atomic.Int64
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		first := time.Now()
		var replicas sync.WaitGroup
		for _, late := range []time.Duration{0, 2 * time.Second} {
			replicas.Go(func() {
				g, err := guard.New(store)
				if err != nil {
					t.Error(err)
					return
				}
				for tick := range ticks {
					at := first.Add(time.Duration(tick) * r.period())
					time.Sleep(time.Until(at.Add(late)))
					key := "key"
					if dated.MatchString(r.key) {
						key += at.Format(time.DateOnly)
					}
					_ = g.Do(t.Context(), key, func(context.Context) error {
						runs.Add(1)
						time.Sleep(work)
						return nil
					}, r.option())
				}
				if err := g.Close(context.Background()); err != nil {
					t.Error(err)
				}
			})
		}
		replicas.Wait()
	})
	return int(runs.Load())
}
