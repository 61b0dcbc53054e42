package ticks_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/middleware/internal/ticks"
)

func TestZoneName_ofTheProcess(t *testing.T) {
	tokyo, err := time.LoadLocation("Asia/Tokyo")
	require.NoError(t, err)
	require.Equal(t, "Asia/Tokyo", ticks.ZoneName(tokyo))
	require.NotEmpty(t, ticks.ZoneName(time.Local))
	for tz, want := range map[string]string{"Europe/Berlin": "Europe/Berlin", ":Europe/Berlin": "Europe/Berlin", "": "UTC"} {
		t.Setenv("TZ", tz)
		require.Equal(t, want, ticks.ZoneName(time.Local))
	}
}
