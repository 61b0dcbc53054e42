package system_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/processtest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// The test binary is its own worker process when this is set to the server's address.
const workerEnv = "ONERUN_TEST_WORKER"

func TestMain(m *testing.M) {
	if addr := os.Getenv(workerEnv); addr != "" {
		work(addr)
		return
	}
	if task := os.Getenv(contenderEnv); task != "" {
		contend(task)
		return
	}
	if on := os.Getenv(holderEnv); on != "" {
		holdUntilKilled(on)
		return
	}
	if task := os.Getenv(queuerEnv); task != "" {
		queue(task)
		return
	}
	if addr := os.Getenv(candidateEnv); addr != "" {
		campaign(addr)
		return
	}
	os.Exit(m.Run())
}

const workerTTL = 500 * time.Millisecond

// work takes the key, says so, and goes on until a line comes in: then it says whether it may
// still write, and with which fence it does.
func work(addr string) {
	g, err := guard.New(single.New(redis.NewClient(&redis.Options{Addr: addr})), guard.WithTTL(workerTTL))
	if err != nil {
		fmt.Println("error", err)
		return
	}
	err = g.Do(context.Background(), "k", func(ctx context.Context) error {
		lease, _ := guard.FromContext(ctx)
		fmt.Println("holds", lease.Fence())
		bufio.NewScanner(os.Stdin).Scan()
		fmt.Println("valid", lease.Valid())
		fmt.Println("writes", lease.Fence())
		<-ctx.Done()
		return nil
	}, guard.WithOnce(time.Hour), guard.WithMaxHold(time.Minute))
	var lost *guard.LostError
	switch {
	case errors.Is(err, guard.ErrBusy), errors.Is(err, guard.ErrDone):
		fmt.Println("skipped")
	case errors.As(err, &lost):
		fmt.Println("lost", lost.Reason)
	default:
		fmt.Println("error", err)
	}
}

func startWorker(t *testing.T, addr string) *processtest.Child {
	t.Helper()
	return processtest.Self(t, workerEnv+"="+addr)
}

// says returns what the process says after the word, with which its next line begins.
func says(t *testing.T, c *processtest.Child, word string) string {
	t.Helper()
	line := c.Next()
	rest, ok := strings.CutPrefix(line, word)
	require.True(t, ok, "the process said %q, not %q", line, word)
	return strings.TrimSpace(rest)
}

func saysFence(t *testing.T, c *processtest.Child, word string) uint64 {
	t.Helper()
	fence, err := strconv.ParseUint(says(t, c, word), 10, 64)
	require.NoError(t, err)
	return fence
}

func TestProcesses_oneRunsAndTheOthersSkip(t *testing.T) {
	server := redistest.Start(t)
	var workers []*processtest.Child
	for range 5 {
		workers = append(workers, startWorker(t, server.Addr()))
	}
	holds := 0
	for _, w := range workers {
		line := w.Next()
		switch said, _, _ := strings.Cut(line, " "); said {
		case "holds":
			holds++
		case "skipped":
		default:
			require.Fail(t, "a worker said: "+line)
		}
	}
	require.Equal(t, 1, holds)
}

// Fault 1 of the fault plan.
func TestProcesses_anotherTakesOverFromAKilledOne(t *testing.T) {
	server := redistest.Start(t)
	w := startWorker(t, server.Addr())
	fence := saysFence(t, w, "holds")
	w.Kill()
	g, err := guard.New(single.New(server.Client(t)), guard.WithTTL(workerTTL))
	require.NoError(t, err)
	redistest.Within(t, workerTTL+100*time.Millisecond, "to take over", func() {
		require.NoError(t, g.Do(t.Context(), "k", func(ctx context.Context) error {
			require.Greater(t, guard.Fence(ctx), fence)
			return nil
		}, guard.WithWait(10*time.Second)))
	})
	require.NoError(t, g.Close(t.Context()))
}

// Fault 2 of the fault plan.
func TestProcesses_aPausedOneKnowsAtOnceAndIsFenced(t *testing.T) {
	server := redistest.Start(t)
	w := startWorker(t, server.Addr())
	stale := saysFence(t, w, "holds")
	require.NoError(t, w.Freeze())
	g, err := guard.New(single.New(server.Client(t)), guard.WithTTL(workerTTL))
	require.NoError(t, err)
	highest := stale // what a resource remembers
	require.NoError(t, g.Do(t.Context(), "k", func(ctx context.Context) error {
		highest = max(highest, guard.Fence(ctx))
		w.Tell("go on")
		require.NoError(t, w.Thaw())
		require.Equal(t, "false", says(t, w, "valid"))
		require.Less(t, saysFence(t, w, "writes"), highest, "the resource can refuse it")
		require.Contains(t, []string{string(guard.LossExpired), string(guard.LossNotHeld)}, says(t, w, "lost"))
		lease, _ := guard.FromContext(ctx)
		require.True(t, lease.Valid(), "and it has not touched the new holder's lease")
		return nil
	}, guard.WithWait(10*time.Second)))
	require.NoError(t, g.Do(t.Context(), "k", nothing), "nor left its marker")
	require.NoError(t, g.Close(t.Context()))
}

// Fault 3 of the fault plan.
func TestProcesses_onePausedWhileItsGrantIsOnTheWayDoesNotUseIt(t *testing.T) {
	server := redistest.Start(t)
	g, err := guard.New(single.New(server.Client(t)), guard.WithTTL(workerTTL))
	require.NoError(t, err)
	require.NoError(t, g.Do(t.Context(), "warm", nothing)) // the server knows the scripts
	proxy := redistest.StartProxy(t, server.Addr())
	proxy.HoldReplyTo("evalsha")
	server.ResetStats(t)
	w := startWorker(t, proxy.Addr())
	require.Eventually(t, func() bool { return server.Calls(t)["evalsha"] == 1 }, 5*time.Second, time.Millisecond)
	require.NoError(t, w.Freeze())
	require.NoError(t, g.Do(t.Context(), "k", func(ctx context.Context) error {
		proxy.ReleaseReplies()
		require.NoError(t, w.Thaw())
		// The grant comes to a request that has timed out, or comes too late: it depends on what
		// the worker looks at first when it wakes.
		require.Regexp(t, `^(guard|single): acquire "k".*: timeout: `, says(t, w, "error"))
		lease, _ := guard.FromContext(ctx)
		require.True(t, lease.Valid())
		return nil
	}, guard.WithWait(10*time.Second)))
	require.NoError(t, g.Close(t.Context()))
}
