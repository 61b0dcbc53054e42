package guardasynq

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// With WithWait, a task may have waited in its worker for longer than a task is remembered.
func TestPark_countsFromNow(t *testing.T) {
	m := &middleware{}
	d := &delivery{m: m, identity: "key", queue: "default", start: time.Now().Add(-time.Hour)}
	d.park("id")
	task, ok := m.parked.next("key", time.Now())
	require.True(t, ok)
	require.Equal(t, "id", task.id)
}
