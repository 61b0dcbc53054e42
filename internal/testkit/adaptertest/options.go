package adaptertest

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// A row is an option of package guard.
type row struct {
	option func(*store) guard.Option
	// shows reports whether the option has reached the leases. It is nil for an option whose
	// effect does not show in a claim: a TTL beside it then shows that both have.
	shows func(*store) bool
}

// rows are all options of package guard.
var rows = map[string]row{
	"WithName":         {func(*store) guard.Option { return guard.WithName("named") }, func(s *store) bool { return slices.Contains(s.names, "named") }},
	"WithNamespace":    {func(*store) guard.Option { return guard.WithNamespace("other") }, keyed("other:")},
	"WithoutNamespace": {func(*store) guard.Option { return guard.WithoutNamespace() }, claimed(func(c driver.Claim) bool { return !strings.HasPrefix(c.Key, "test:") })},
	"WithTTL":          {func(*store) guard.Option { return guard.WithTTL(ttl) }, lasting},
	"WithWait":         {func(*store) guard.Option { return guard.WithWait(time.Second) }, claimed(func(c driver.Claim) bool { return c.Queue.Waits() })},
	"WithFair":         {func(*store) guard.Option { return guard.WithFair() }, claimed(func(c driver.Claim) bool { return c.Queue.UsesQueue() })},
	"WithOnce":         {func(*store) guard.Option { return guard.WithOnce(24 * time.Hour) }, left(func(a driver.After) bool { return a.Done && a.Keep == 24*time.Hour })},
	"WithOncePer":      {func(*store) guard.Option { return guard.WithOncePer(24 * time.Hour) }, left(func(a driver.After) bool { return a.Done && a.Keep < 22*time.Hour })},
	"WithMinHold":      {func(*store) guard.Option { return guard.WithMinHold(time.Minute) }, left(func(a driver.After) bool { return a.Keep > 0 })},
	"WithMaxHold":      {func(*store) guard.Option { return guard.WithMaxHold(time.Minute) }, nil},
	"WithoutRenewal":   {func(*store) guard.Option { return guard.WithoutRenewal() }, nil},
	"WithRenewal":      {func(*store) guard.Option { return guard.WithRenewal() }, nil},
	"WithoutFair":      {func(*store) guard.Option { return guard.WithoutFair() }, nil},
	"WithMargin":       {func(*store) guard.Option { return guard.WithMargin(time.Second) }, nil},
	"WithOwner":        {func(*store) guard.Option { return guard.WithOwner("import of 17") }, owned},
	"WithOwnerFrom": {func(*store) guard.Option {
		return guard.WithOwnerFrom(func(string) string { return "import of 17" })
	}, owned},
	"WithLabel": {func(*store) guard.Option { return guard.WithLabel("pod-7") }, claimed(func(c driver.Claim) bool { return strings.Contains(c.Label, "pod-7") })},
	"WithHook": {func(s *store) guard.Option {
		return guard.WithHook(guard.Hook{AcquireEnd: func(context.Context, guard.AcquireEvent) { s.note(func() { s.hooked = true }) }})
	}, func(s *store) bool { return s.hooked }},
	"WithShared": {func(*store) guard.Option { return guard.WithShared() }, among(driver.Unlimited)},
	"WithLimit":  {func(*store) guard.Option { return guard.WithLimit(3) }, among(3)},
}

// ttl is no default of any adapter.
const ttl = 7 * time.Second

func lasting(s *store) bool { return claimed(func(c driver.Claim) bool { return c.TTL == ttl })(s) }

func claimed(is func(driver.Claim) bool) func(*store) bool {
	return func(s *store) bool { return slices.ContainsFunc(s.claims, is) }
}

func left(is func(driver.After) bool) func(*store) bool {
	return func(s *store) bool { return slices.ContainsFunc(s.afters, is) }
}

func keyed(prefix string) func(*store) bool {
	return claimed(func(c driver.Claim) bool { return strings.HasPrefix(c.Key, prefix) })
}

func among(n int) func(*store) bool {
	return claimed(func(c driver.Claim) bool { return c.MaxHolders == n })
}

func owned(s *store) bool {
	return claimed(func(c driver.Claim) bool { return c.Owner == "import of 17" })(s)
}

// TestAllOptions tests that the suite knows all options of package guard: an option that it does
// not know would have no cell.
func TestAllOptions(t *testing.T) {
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", "github.com/seed-1795987d/onerun/guard").Output()
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "*.go"))
	require.NoError(t, err)
	found := map[string]bool{}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range f.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.IsExported() && returnsOption(f.Type) {
				found[f.Name.Name] = true
			}
		}
	}
	known := map[string]bool{}
	for name := range rows {
		known[name] = true
	}
	require.Equal(t, found, known, "each option of package guard has a row, and says which adapters refuse it")
}

func returnsOption(f *ast.FuncType) bool {
	if f.Results == nil || len(f.Results.List) != 1 {
		return false
	}
	id, ok := f.Results.List[0].Type.(*ast.Ident)
	return ok && id.Name == "Option"
}
