package etcd

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/internal/holders"
)

func TestClock_next(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	wall := holders.Clock(now)
	first := clock{}.next(now, 10, 0)
	require.Equal(t, clock{wall + 2*fenceSecond, 10}, first, "reserved fences of a lost clock are lower")
	require.Equal(t, first, first.next(now, 11, 0))
	require.Equal(t, first, first.next(now.Add(3*time.Second), 11, 0), "within a second, it stays")
	later := now.Add(4 * time.Second)
	second := first.next(later, 11, 0)
	require.Equal(t, clock{holders.Clock(later), 11}, second)
	require.Greater(t, second.at(12), first.at(12)+maxReserve)
	require.Equal(t, second, second.next(now, 12, 0), "it never goes back")
	raised := second.next(later, 12, wall+1<<40)
	require.Greater(t, raised.at(13), wall+uint64(1)<<40)
	require.Equal(t, second, second.next(later, 12, second.at(12)-1), "the next fence is larger in any case")
	// A snapshot was restored, whose revision is lower.
	restored := first.next(later, 5, 0)
	require.Greater(t, restored.at(6), first.at(20))
}

func TestSeconds(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		0: 1, time.Millisecond: 1, time.Second: 1, time.Second + 1: 2, 2500 * time.Millisecond: 3, 1<<63 - 1: maxSeconds,
	} {
		require.Equal(t, want, seconds(d), d.String())
	}
	require.NotEqual(t, leaseID("k", "", time.Second), leaseID("k", "", 2*time.Second))
	require.Equal(t, leaseID("k", "", 1500*time.Millisecond), leaseID("k", "", 2*time.Second))
}

func TestWarnings_ofVersions(t *testing.T) {
	for version, faulty := range map[string]bool{
		"3.4.44": true, "3.5.22": true, "3.5.23": false, "3.6.4": true, "3.6.5": false, "3.7.0": false, "4.0.0": false, "2.3.8": true, "unknown": false,
	} {
		require.Equal(t, faulty, isFaulty(version), version)
	}
}
