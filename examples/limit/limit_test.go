package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/examples/internal/programtest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

func TestMain(m *testing.M) { programtest.Main(m, main) }

// Three processes together call the partner three times at a time, and no more.
func TestLimit_isThatOfAllProcessesTogether(t *testing.T) {
	t.Parallel()
	var now, most, all atomic.Int64
	partner := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		for n, old := now.Add(1), most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		all.Add(1)
		time.Sleep(20 * time.Millisecond) // a call takes a while
		now.Add(-1)
	}))
	defer partner.Close()
	addr := redistest.Start(t).Addr()
	one := programtest.Start(t, "-redis", addr, "-partner", partner.URL, "-calls", "15")
	two := programtest.Start(t, "-redis", addr, "-partner", partner.URL, "-calls", "15")
	three := programtest.Start(t, "-redis", addr, "-partner", partner.URL, "-calls", "15")
	one.Ends()
	two.Ends()
	three.Ends()
	require.EqualValues(t, 45, all.Load())
	require.EqualValues(t, allowed, most.Load())
	seats := one.Said() + two.Said() + three.Said()
	for _, seat := range []string{"seat 1\n", "seat 2\n", "seat 3\n"} {
		require.Positive(t, strings.Count(seats, seat))
	}
	require.NotContains(t, seats, "seat 4")
}
