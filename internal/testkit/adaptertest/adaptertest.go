// Package adaptertest has what every adapter promises. Adapter tests its Guard: it needs a
// namespace, and each option of package guard works or is refused by its name. Distinct tests its
// keys: two texts never have one key. KeyStore tests the page of the docs: it states the keys that
// the adapter takes.
//
//	adaptertest.Adapter{Start: start, Refused: []string{"WithWait"}}.Test(t)
package adaptertest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// An Adapter is one that is tested.
type Adapter struct {
	// Start makes the adapter on the Guard, has it do one piece of work, and ends it. The options
	// are those of its leases. It returns the error of the adapter's New, or of the work.
	Start func(t *testing.T, g *guard.Guard, lease ...guard.Option) error
	// Refused are the options that the adapter refuses for its leases, and ByGuard those that it
	// refuses in guard.New. Those of the namespace are not listed.
	Refused, ByGuard []string
	// Bare means that the adapter takes no options of leases.
	Bare bool
	// AnyGuard means that the options of guard.New are those of other calls.
	AnyGuard bool
}

// Test tests the adapter. All cells run at the same time: in some of them, a tick has to come.
func (a Adapter) Test(t *testing.T) {
	var cells sync.WaitGroup
	defer cells.Wait()
	run := func(name string, cell func(t *testing.T)) { cells.Go(func() { t.Run(name, cell) }) }
	for title, of := range namespaces {
		run(title, func(t *testing.T) { a.namespace(t, of) })
	}
	for name, row := range rows {
		if !a.AnyGuard {
			run("guard.New with "+name, func(t *testing.T) { a.cell(t, name, row, contains(a.ByGuard, name), true) })
		}
		if a.Bare {
			continue
		}
		run("a lease "+name, func(t *testing.T) {
			refused := contains(a.Refused, name) || name == "WithNamespace" || name == "WithoutNamespace"
			a.cell(t, name, row, refused, false)
		})
	}
}

// contains reports whether a list of refused options has the name. Who refuses WithOnce refuses
// WithOncePer.
func contains(refused []string, name string) bool {
	if name == "WithOncePer" {
		name = "WithOnce"
	}
	return slices.Contains(refused, name)
}

// cell tests one option, of the Guard or of the lease.
func (a Adapter) cell(t *testing.T, name string, row row, refused, ofGuard bool) {
	s := &store{Locker: memory.New()}
	opts := []guard.Option{guard.WithNamespace("test"), guard.WithHook(guard.Hook{
		AcquireEnd: func(_ context.Context, e guard.AcquireEvent) { s.note(func() { s.names = append(s.names, e.Name) }) },
	})}
	option, shows := []guard.Option{row.option(s)}, row.shows
	if shows == nil {
		option, shows = append(option, guard.WithTTL(ttl)), lasting
	}
	var lease []guard.Option
	if ofGuard {
		opts = append(opts, option...)
	} else {
		lease = option
	}
	err := a.start(t, s, opts, lease...)
	if refused {
		require.Contains(t, named(err), name, "%v", err)
		require.Empty(t, s.claims, "the work has not begun")
		return
	}
	require.NoError(t, err)
	if !a.Bare {
		require.True(t, shows(s), "%s has no effect: %+v %+v", name, s.claims, s.afters)
	}
}

// A namespace is what a Guard is given of one.
type namespace struct {
	opts    []guard.Option
	refused bool
	prefix  string // of keys
}

var namespaces = map[string]namespace{
	"no namespace":             {nil, true, ""},
	"an empty namespace":       {[]guard.Option{guard.WithNamespace("")}, true, ""},
	"a namespace":              {[]guard.Option{guard.WithNamespace("billing")}, false, "billing::"},
	"none on purpose":          {[]guard.Option{guard.WithoutNamespace()}, false, ""},
	"an empty one, on purpose": {[]guard.Option{guard.WithoutNamespace(), guard.WithNamespace("")}, false, ""},
	"a namespace after all":    {[]guard.Option{guard.WithoutNamespace(), guard.WithNamespace("billing")}, false, "billing::"},
}

func (a Adapter) namespace(t *testing.T, of namespace) {
	s := &store{Locker: memory.New()}
	err := a.start(t, s, of.opts)
	if of.refused {
		require.Equal(t, []string{"WithNamespace"}, named(err), "%v", err)
		require.ErrorContains(t, err, "WithoutNamespace", "it says both ways out")
		require.Empty(t, s.claims, "the work has not begun")
		return
	}
	require.NoError(t, err)
	for _, claim := range s.claims {
		require.Regexp(t, "^"+of.prefix+"[a-z-]+:", claim.Key)
	}
}

// start makes the Guard, and starts the adapter on it.
func (a Adapter) start(t *testing.T, s *store, opts []guard.Option, lease ...guard.Option) error {
	g, err := guard.New(s, opts...)
	require.NoError(t, err)
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, g.Close(ctx))
	}()
	return a.Start(t, g, lease...)
}

// named returns the settings that an error names.
func named(err error) []string {
	var names []string
	switch e := err.(type) { //nolint:errorlint // it looks at all errors of a tree
	case nil:
	case *guard.SettingError:
		names = []string{e.Setting}
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			names = append(names, named(err)...)
		}
	default:
		names = named(errors.Unwrap(err))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// A store keeps what it is asked.
type store struct {
	*memory.Locker

	mu     sync.Mutex
	claims []driver.Claim
	afters []driver.After
	names  []string // of the work
	hooked bool
}

func (s *store) note(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// TryAcquire implements guard.Locker.
func (s *store) TryAcquire(ctx context.Context, c driver.Claim) (driver.Answer, error) {
	s.note(func() { s.claims = append(s.claims, c) })
	return s.Locker.TryAcquire(ctx, c)
}

// Release implements guard.Locker.
func (s *store) Release(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
	s.note(func() { s.afters = append(s.afters, after) })
	return s.Locker.Release(ctx, c, after)
}
