package guardriver_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/adaptertest"
	guardriver "github.com/seed-1795987d/onerun/middleware/river"
)

// What every adapter promises of its Guard and the options of its leases.
func TestNew_asAllAdapters(t *testing.T) {
	t.Parallel()
	replaces := []string{"WithWait", "WithOnce", "WithOwner", "WithOwnerFrom"}
	alone := append([]string{"WithShared", "WithLimit"}, replaces...)
	start := func(key guardriver.KeyFunc, lease func(opts ...guard.Option) guardriver.Option) func(*testing.T, *guard.Guard, ...guard.Option) error {
		return func(t *testing.T, g *guard.Guard, opts ...guard.Option) error {
			with := []guardriver.Option{lease(opts...)}
			if key == nil {
				with = append(with, guardriver.WithOnce(time.Hour, guardriver.FromKind()))
			}
			m, err := guardriver.New(g, key, with...)
			if err != nil {
				return err
			}
			return m.Work(t.Context(), charge(1, "42"), returns(nil))
		}
	}
	ofJob := func(opts ...guard.Option) guardriver.Option {
		return guardriver.WithJobLease(func(context.Context, *rivertype.JobRow) []guard.Option { return opts })
	}
	for name, a := range map[string]adaptertest.Adapter{
		"all jobs": {Start: start(guardriver.FromKind(), guardriver.WithLease), Refused: replaces, ByGuard: replaces},
		"of a job": {Start: start(guardriver.FromKind(), ofJob), Refused: []string{"WithWait", "WithOnce"}, ByGuard: replaces},
		"once":     {Start: start(nil, guardriver.WithLease), Refused: alone, ByGuard: alone},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a.Test(t)
		})
	}
}

func TestOptions_thatCannotWork(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	for name, opt := range map[string]guardriver.Option{
		"Option: ":           nil,
		"WithGroup: ":        guardriver.WithGroup(""),
		"WithBusy 3 ":        guardriver.WithBusy(guardriver.Fail + 1),
		"WithBusy -1 ":       guardriver.WithBusy(-1),
		"WithDelay -1s ":     guardriver.WithDelay(-time.Second),
		"WithDelay 2562047h": guardriver.WithDelay(math.MaxInt64),
		"WithWait -1ns ":     guardriver.WithWait(-1),
		"WithOnce -1ns ":     guardriver.WithOnce(-1, guardriver.FromKind()),
		"WithOnce: ":         guardriver.WithOnce(time.Hour, nil),
		"WithJobLease: ":     guardriver.WithJobLease(nil),
		"WithName ":          guardriver.WithLease(guard.WithName(strings.Repeat("n", 129))),
		"WithTTL 1ms ":       guardriver.WithLease(guard.WithTTL(time.Millisecond)),
	} {
		m, err := guardriver.New(s.Guard, guardriver.FromKind(), opt)
		require.Nil(t, m)
		var setting *guard.SettingError
		require.ErrorAs(t, err, &setting)
		option, _, _ := strings.Cut(strings.TrimRight(name, ": "), " ")
		require.Equal(t, option, setting.Setting, name)
		require.NotContains(t, err.Error(), "\n", "one error")
	}
}

func TestOptions_theirMistakesComeInOneError(t *testing.T) {
	t.Parallel()
	m, err := guardriver.New(nil, nil, guardriver.WithWait(-1))
	require.Nil(t, m)
	for _, setting := range []string{"guard", "key", "WithWait"} {
		require.ErrorContains(t, err, setting)
	}
}

// Hooks get the kind as the name of the work, unless there is another one, and a kind that is no
// name is none.
func TestName_isTheKind(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]string{"charge": "charge", strings.Repeat("n", 129): "river", "a\x00b": "river"} {
		s := newStand(t)
		job := charge(1, "42")
		job.Kind = kind
		require.NoError(t, s.middleware(t, byCustomer).Work(t.Context(), job, returns(nil)))
		require.NoError(t, s.middleware(t, byCustomer, guardriver.WithLease(guard.WithName("pay"))).Work(t.Context(), job, returns(nil)))
		require.Equal(t, []string{want, "pay"}, []string{s.outcomes[0].Name, s.outcomes[1].Name})
		require.Equal(t, "river", s.outcomes[0].Adapter)
	}
}
