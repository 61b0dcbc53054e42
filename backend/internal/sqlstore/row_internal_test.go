package sqlstore

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/internal/holders"
)

// Processes of different versions read the column, so the names in it do not change.
func TestEncode_keepsTheFormOfTheColumn(t *testing.T) {
	t.Parallel()
	ends := time.Date(2026, 11, 26, 1, 2, 3, 4000, time.UTC)
	k := holders.Key{
		Holders: []holders.Holder{
			{ID: "a", MaxHolders: 2, Fence: 7, First: 6, Last: 9, Seat: 1, Label: "\xff\x00", Ends: ends},
			{ID: "b", MaxHolders: 3, Fence: 8, First: 8, Last: 8, Released: true, Ends: ends},
		},
		Wanted: holders.Wanted{ID: "w", MaxHolders: 1, Until: ends},
	}
	text := encode(k)
	require.JSONEq(t, `{"holders": [
		{"id": "a", "max_holders": 2, "fence": 7, "first": 6, "last": 9, "seat": 1, "label": "/wA=",
			"ends": "2026-11-26T01:02:03.000004Z"},
		{"id": "b", "max_holders": 3, "fence": 8, "first": 8, "last": 8, "released": true,
			"ends": "2026-11-26T01:02:03.000004Z"}
	], "wanted": {"id": "w", "max_holders": 1, "until": "2026-11-26T01:02:03.000004Z"}}`, string(text))
	decoded, err := decode(text)
	require.NoError(t, err)
	require.Equal(t, k, decoded)
	empty, err := decode(encode(holders.Key{}))
	require.NoError(t, err)
	require.Equal(t, holders.Key{}, empty)
}

func TestMicros_roundsUp(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]int64{
		0: 0, 1: 1, time.Microsecond: 1, time.Microsecond + 1: 2, math.MaxInt64: math.MaxInt64/1000 + 1, -1: 0,
	} {
		require.Equal(t, want, Micros(d), "%d", d)
	}
}
