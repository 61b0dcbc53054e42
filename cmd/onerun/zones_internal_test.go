package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

func TestZoneOf_showsAllZonesIfProcessesDiffer(t *testing.T) {
	t.Parallel()
	require.Equal(t, "-", zoneOf(guardcron.JobInfo{}))
	require.Equal(t, "UTC", zoneOf(guardcron.JobInfo{Zone: "UTC"}))
	require.Equal(t, "differ: UTC, Europe/Berlin", zoneOf(guardcron.JobInfo{Zone: "UTC", Zones: []string{"UTC", "Europe/Berlin"}}))
}
