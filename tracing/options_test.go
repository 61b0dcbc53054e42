package tracing_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/tracing"
)

func TestNew_refusesASettingThatCannotWorkAndNamesIt(t *testing.T) {
	for setting, opts := range map[string][]tracing.Option{
		"tracing.Option":             {nil},
		"tracing.WithTracerProvider": {tracing.WithTracerProvider(nil)},
		"tracing.WithMeterProvider":  {tracing.WithMeterProvider(nil)},
		"tracing.WithRedactor":       {tracing.WithRedactor(nil)},
		"tracing.WithMaxNames":       {tracing.WithMaxNames(0)},
		"tracing.WithJob":            {tracing.WithJob(tracing.Job{Every: 1})},
	} {
		_, err := tracing.New(opts...)
		var refused *guard.SettingError
		require.ErrorAs(t, err, &refused, setting)
		require.Equal(t, setting, refused.Setting)
		require.NotEmpty(t, refused.Reason)
	}
	for reason, opts := range map[string][]tracing.Option{
		"must be from 1 to 10000":                      {tracing.WithMaxNames(10_001)},
		"must not be less than the 2 names of WithJob": {tracing.WithMaxNames(1), tracing.WithJob(tracing.Job{Name: "a"}, tracing.Job{Name: "b"})},
		"must not be declared twice":                   {tracing.WithJob(tracing.Job{Name: "a"}), tracing.WithJob(tracing.Job{Name: "a"})},
		"must not be negative":                         {tracing.WithJob(tracing.Job{Name: "a", Every: -1})},
	} {
		_, err := tracing.New(opts...)
		require.ErrorContains(t, err, reason)
	}
}
