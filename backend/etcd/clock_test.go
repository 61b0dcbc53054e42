package etcd_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/etcd"
	"github.com/seed-1795987d/onerun/internal/testkit/etcdtest"
)

// A process whose clock is years ahead moves the clock of the fences for good. They go on growing,
// and an operator is warned.
func TestFences_ofAClockThatIsYearsAhead(t *testing.T) {
	t.Parallel()
	client := connect(t, etcdtest.Start(t))
	l := etcd.New(client)
	last := lastFence(t, l, 1)
	require.Empty(t, l.Warnings(within(t, 20*time.Second)))
	const year = 365 * 24 * 3600 << 20 // on the scale of fences
	value, err := json.Marshal(map[string]uint64{"base": last + 3*year, "since": 1})
	require.NoError(t, err)
	_, err = client.Put(within(t, 20*time.Second), "onerun/clock", string(value))
	require.NoError(t, err)
	require.Greater(t, lastFence(t, l, 3), last+3*year)
	warnings := l.Warnings(within(t, 20*time.Second))
	require.Len(t, warnings, 1)
	require.ErrorContains(t, warnings[0], "a clock is wrong")
}
