package soak_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/processtest"
)

// A child is a process of the test's.
type child struct {
	*processtest.Child
	name string
	log  string // the file of its events
}

func startChild(t *testing.T, name, env string, what any) *child {
	t.Helper()
	text, err := json.Marshal(what)
	require.NoError(t, err)
	return &child{Child: processtest.Self(t, env+"="+string(text)), name: name}
}

// hasSaid reports whether the child has said that.
func (c *child) hasSaid(line string) bool { return strings.Contains(c.Said(), line+"\n") }

// pause stops the child for some time.
func (c *child) pause(t *testing.T, d time.Duration) {
	t.Helper()
	require.NoError(t, c.Freeze())
	time.Sleep(d) // the pause
	require.NoError(t, c.Thaw())
}
