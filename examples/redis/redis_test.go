package main

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/examples/internal/programtest"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

func TestMain(m *testing.M) { programtest.Main(m, main) }

// Time passes in the server: the lease of a process that has died ends.
func TestRedis_leasesEnd(t *testing.T) {
	t.Parallel()
	server := programtest.Start(t, "-addr", "127.0.0.1:0")
	rdb := redis.NewClient(&redis.Options{Addr: server.Says("listening on ")})
	defer rdb.Close()
	g, err := guard.New(single.New(rdb), guard.WithTTL(time.Second))
	require.NoError(t, err)
	defer func() { require.NoError(t, g.Close(t.Context())) }()

	dead, err := single.New(rdb).TryAcquire(t.Context(), driver.Claim{Key: "k", ID: "dead", Owner: "dead", TTL: time.Second})
	require.NoError(t, err)
	require.Equal(t, driver.Granted, dead.State)
	require.ErrorIs(t, g.Do(t.Context(), "k", nothing), guard.ErrBusy)
	start := time.Now()
	require.NoError(t, g.Do(t.Context(), "k", nothing, guard.WithWait(time.Minute)))
	require.Less(t, time.Since(start), 10*time.Second)

	require.NoError(t, server.Signal(syscall.SIGTERM))
	server.Ends()
}

func nothing(context.Context) error { return nil }
