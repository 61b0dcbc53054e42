package main

import (
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/examples/internal/programtest"
	"github.com/seed-1795987d/onerun/internal/testkit/processtest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

func TestMain(m *testing.M) { programtest.Main(m, main) }

// startTwo starts a replica that leads, and one that stands by.
func startTwo(t *testing.T) (leader, other *processtest.Child, term uint64) {
	t.Helper()
	addr := redistest.Start(t).Addr()
	leader = programtest.Start(t, "-redis", addr, "-name", "web-1")
	term = termOf(t, leader, "web-1")
	leader.Says("web-1 consumes")
	other = programtest.Start(t, "-redis", addr, "-name", "web-2")
	other.Says("web-2 stands by")
	return leader, other, term
}

// termOf waits until the replica leads, and returns its term.
func termOf(t *testing.T, replica *processtest.Child, name string) uint64 {
	t.Helper()
	term, err := strconv.ParseUint(replica.Says(name+" leads, term"), 10, 64)
	require.NoError(t, err)
	return term
}

// How a leader can go: another one follows, in a later term.
func TestLeader_anotherOneFollows(t *testing.T) {
	t.Parallel()
	for name, goes := range map[string]func(t *testing.T, leader *processtest.Child){
		"stops": func(t *testing.T, leader *processtest.Child) {
			require.NoError(t, leader.Signal(syscall.SIGTERM))
			leader.Ends()
			require.Contains(t, leader.Said(), "web-1 leads no more")
		},
		"dies": func(_ *testing.T, leader *processtest.Child) { leader.Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			leader, other, term := startTwo(t)
			require.False(t, strings.Contains(other.Said(), "leads"))
			goes(t, leader)
			require.Greater(t, termOf(t, other, "web-2"), term)
		})
	}
}

// A leader that is paused for longer than its lease finds that its term is over.
func TestLeader_aPausedOneLeadsNoMore(t *testing.T) {
	t.Parallel()
	leader, other, term := startTwo(t)
	require.NoError(t, leader.Freeze())
	require.Greater(t, termOf(t, other, "web-2"), term)
	require.NoError(t, leader.Thaw())
	leader.Says("web-1 leads no more")
	other.Says("web-2 consumes")
}
