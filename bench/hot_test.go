package bench

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

const (
	hotTasks  = 1000
	hotWork   = 10 * time.Millisecond
	hotOthers = 50
	hotSpan   = 4 * time.Second
	hotPeriod = 200 * time.Millisecond
)

// BenchmarkHotCustomer has a customer with 1,000 tasks of 10 ms in the queue. 50 other customers
// enqueue a task of 10 ms each five times a second, for four seconds. It measures how long a task
// of the others takes from its enqueueing to its handler (p50-ms, p99-ms), and how long the hot
// customer's tasks take (hot-s). "alone" is without the hot customer.
func BenchmarkHotCustomer(b *testing.B) {
	for _, processes := range []int{1, 4} {
		for name, hot := range map[string]int{"alone": 0, "beside": hotTasks} {
			b.Run(fmt.Sprintf("%s/processes=%d", name, processes), func(b *testing.B) { measureHot(b, processes, hot) })
		}
	}
}

func measureHot(b *testing.B, processes, hot int) {
	server := redistest.Start(b)
	rdb := server.Client(b)
	client := asynq.NewClient(asynq.RedisClientOpt{Addr: server.Addr()})
	defer client.Close()
	for range hot {
		require.NoError(b, replicaTask{}.enqueue(client))
	}
	all, start := startReplicas(b, processes, replica{Addr: server.Addr(), Work: hotWork, Around: byGuard})
	tasks := hot
	pause := hotPeriod / hotOthers
	for next := start; time.Since(start) < hotSpan; next = next.Add(pause) {
		time.Sleep(time.Until(next)) // the others enqueue at a constant rate
		require.NoError(b, replicaTask{Customer: 1 + tasks%hotOthers}.enqueue(client))
		tasks++
	}
	for rdb.LLen(b.Context(), replicaDone).Val() < int64(tasks) {
		time.Sleep(5 * time.Millisecond) // between two looks
	}
	took := time.Since(start)
	require.Zero(b, rdb.Exists(b.Context(), replicaMet).Val(), "two handlers of a customer at a time")
	var late []int
	for _, text := range rdb.LRange(b.Context(), replicaLate, 0, -1).Val() {
		n, err := strconv.Atoi(text)
		require.NoError(b, err)
		late = append(late, n)
	}
	slices.Sort(late)
	for _, percent := range []int{50, 99} {
		b.ReportMetric(float64(late[len(late)*percent/100])/1e6, fmt.Sprintf("p%d-ms", percent))
	}
	b.ReportMetric(took.Seconds(), "hot-s")
	b.ReportMetric(0, "ns/op")
	for _, p := range all {
		p.Kill() // the next measurement is to have the machine for itself
	}
}
