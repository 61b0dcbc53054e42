package guardcron_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/processtest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// A procChild is a process that does what an order says.
type procChild struct {
	*processtest.Child
	order procOrder
}

// startProc starts a process, and returns when its jobs are in its cron.
func startProc(t *testing.T, order procOrder) *procChild {
	t.Helper()
	return startProgram(t, os.Args[0], order)
}

// startProgram is startProc with another program than the test binary, such as one that has a clock
// of its own, and with more variables in its environment.
func startProgram(t *testing.T, program string, order procOrder, env ...string) *procChild {
	t.Helper()
	text, err := json.Marshal(order)
	require.NoError(t, err)
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), append(env, workerEnv+"=cron", procEnv+"="+string(text))...)
	c := &procChild{processtest.StartChild(t, cmd), order}
	c.Says("runs")
	return c
}

// stop ends the process as an orchestrator does.
func (c *procChild) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, c.Signal(syscall.SIGTERM))
	c.Says("ended")
	c.Ends()
}

// procPlace is a store and a resource.
func procPlace(t *testing.T, nodes int, ttl time.Duration, jobs ...procJob) (procOrder, *procLog) {
	t.Helper()
	resource := redistest.Start(t)
	order := procOrder{Log: resource.Addr(), TTL: ttl, Jobs: jobs}
	for _, server := range redistest.StartN(t, nodes) {
		order.Addrs = append(order.Addrs, server.Addr())
	}
	return order, &procLog{rdb: resource.Client(t)}
}

// as returns the order for a process.
func (o procOrder) as(who string, ahead time.Duration) procOrder {
	o.Who, o.Ahead = who, ahead
	return o
}

// startHere runs what an order says in this process, until the test ends.
func startHere(t *testing.T, order procOrder) *procWorker {
	t.Helper()
	w, err := newProcWorker(order)
	require.NoError(t, err)
	w.cron.Start()
	t.Cleanup(func() { _ = w.close(procSoon) })
	return w
}

// untilTick sleeps until the resource's and this process's clock show a second and some more.
func untilTick(second int64, into time.Duration) {
	time.Sleep(time.Until(time.Unix(second, 0).Add(into))) // ticks are instants of the real clock
}
