package ticks

import (
	"testing"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"
)

// The bit for "*" is cron's own.
func TestIsDaily_readsTheStarsOfASpec(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]bool{
		"0 3 * * *": true, "*/5 * * * *": true, "0 3 1 * *": false, "0 3 * 1 *": false, "0 3 * * 1": false, "@every 1h": false,
	} {
		s, err := cron.ParseStandard(spec)
		require.NoError(t, err)
		require.Equal(t, want, isDaily(s), spec)
	}
}
