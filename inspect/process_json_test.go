package inspect_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/inspect"
)

// A key that is not UTF-8 keeps its bytes in a report, and in what "onerun ps --json" prints.
func TestProcess_keepsTheBytesOfAKeyInJSON(t *testing.T) {
	began := time.Date(2026, 11, 26, 3, 0, 0, 0, time.UTC)
	process := inspect.Process{ID: "p", Label: "web-1", Began: began, Time: began.Add(time.Second), More: 1, Held: []guard.HeldLease{
		{Key: "latin \xe9", Name: "report", ID: "a", Fence: 1, Since: began}, {Key: "utf é", ID: "b", Owner: "o", Fence: 2, Seat: 1, Since: began},
	}}
	text, err := json.Marshal(process)
	require.NoError(t, err)
	var read inspect.Process
	require.NoError(t, json.Unmarshal(text, &read))
	require.Equal(t, process, read)
	require.JSONEq(t, `{"id":"p","label":"web-1","began":"2026-11-26T03:00:00Z","time":"2026-11-26T03:00:01Z","more":1,"held":[
		{"key":"latin \ufffd","key_bytes":"bGF0aW4g6Q==","name":"report","id":"a","fence":1,"since":"2026-11-26T03:00:00Z"},
		{"key":"utf é","id":"b","owner":"o","fence":2,"seat":1,"since":"2026-11-26T03:00:00Z"}]}`, string(text))
	text, err = json.Marshal(inspect.Process{ID: "p"})
	require.NoError(t, err)
	require.NotContains(t, string(text), "held")
}

func TestProcesses_showTheBytesOfAKey(t *testing.T) {
	onSite(t, func(t *testing.T, s *site) {
		stop := announce(t, s.here)
		lease, err := s.here.Acquire(t.Context(), "latin \xe9")
		require.NoError(t, err)
		time.Sleep(inspect.AnnounceInterval + time.Second)
		all, err := s.inspector.Processes(t.Context())
		require.NoError(t, err)
		require.Len(t, all, 1)
		require.Equal(t, "latin \xe9", all[0].Held[0].Key)
		require.NoError(t, lease.Release(t.Context()))
		stop()
	})
}
