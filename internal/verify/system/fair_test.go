package system_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/backends"
	"github.com/seed-1795987d/onerun/internal/testkit/processtest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// The test binary is a process whose calls wait in the queue if this is set to the backend and the
// addresses of the servers.
const queuerEnv = "ONERUN_TEST_QUEUER"

const (
	queuers     = 4
	queuedCalls = 20
	workTime    = 5 * time.Millisecond
	fairTTL     = time.Minute // a waiter asks again after half of it
)

func fairGuard(backend, addrs string) (*guard.Guard, redis.UniversalClient, error) {
	rdb := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: strings.Split(addrs, ",")})
	g, err := guard.New(backends.On(backend, rdb), guard.WithTTL(fairTTL), guard.WithFair(), guard.WithWait(guard.Forever))
	return g, rdb, err
}

// queue begins a call for each line that comes in, which is its number. The call notes that it
// runs, when, and under which fence.
func queue(task string) {
	backend, addrs, _ := strings.Cut(task, " ")
	g, rdb, err := fairGuard(backend, addrs)
	if err != nil {
		fmt.Println("error", err)
		return
	}
	if err := g.Do(context.Background(), fmt.Sprint("warm ", os.Getpid()), nothing); err != nil {
		fmt.Println("error", err)
		return
	}
	fmt.Println("ready")
	var all sync.WaitGroup
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		number := lines.Text()
		all.Go(func() {
			err := g.Do(context.Background(), backend, func(ctx context.Context) error {
				note := fmt.Sprint(number, " ", time.Now().UnixMicro(), " ", guard.Fence(ctx))
				time.Sleep(workTime) // the work
				return rdb.RPush(context.Background(), "ran:"+backend, note).Err()
			})
			if err != nil {
				fmt.Println("error", err)
			}
		})
	}
	all.Wait()
}

// A queueing is a key that is held, and calls of several processes that wait for it.
type queueing struct {
	t       *testing.T
	backend string // and the key
	rdb     redis.UniversalClient
	g       *guard.Guard
	holder  *guard.Lease // nil if it has died
	ends    time.Time    // when its lease ends if it has died
	workers []*processtest.Child
}

// A ran is what a call has noted.
type ran struct {
	number int
	at     time.Time
	fence  uint64
}

// newQueueing has calls wait in the queue behind a holder. If ends is not 0, the holder has died,
// and its lease expires after that time.
func newQueueing(t *testing.T, backend, addrs string, ends time.Duration) *queueing {
	g, rdb, err := fairGuard(backend, addrs)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, g.Close(context.Background()))
		require.NoError(t, rdb.Close())
	})
	q := &queueing{t: t, backend: backend, rdb: rdb, g: g}
	for range queuers {
		q.workers = append(q.workers, processtest.Self(t, queuerEnv+"="+backend+" "+addrs))
	}
	for _, w := range q.workers {
		w.Says("ready")
	}
	q.ends = time.Now().Add(ends)
	if ends == 0 {
		q.holder, err = g.Acquire(t.Context(), backend)
	} else {
		_, err = backends.On(backend, rdb).TryAcquire(t.Context(), driver.Claim{Key: backend, ID: "dead", Owner: "dead", TTL: ends, Queue: driver.Queued})
	}
	require.NoError(t, err)
	for i := range queuedCalls {
		q.workers[i%queuers].Tell(strconv.Itoa(i))
		require.Eventually(t, func() bool { return len(q.queued()) == i+1 }, 20*time.Second, time.Millisecond, "call %d is in the queue", i)
	}
	require.Eventually(t, func() bool { // a waiter that has subscribed has asked again
		for _, id := range q.queued() {
			waiter, err := rdb.HGet(t.Context(), strings.Replace(q.key(), "queue", "waiters", 1), id).Result()
			if err != nil || !strings.HasPrefix(waiter, "L") {
				return false
			}
		}
		return true
	}, 20*time.Second, 10*time.Millisecond, "all have subscribed")
	return q
}

// key returns the name of the queue's key, or "".
func (q *queueing) key() string {
	var mu sync.Mutex
	var found []string
	look := func(ctx context.Context, rdb *redis.Client) error {
		keys, err := rdb.Keys(ctx, "*}:queue:"+q.backend).Result()
		mu.Lock()
		defer mu.Unlock()
		found = append(found, keys...)
		return err
	}
	var err error
	if cluster, ok := q.rdb.(*redis.ClusterClient); ok {
		err = cluster.ForEachMaster(q.t.Context(), look)
	} else {
		err = look(q.t.Context(), q.rdb.(*redis.Client))
	}
	require.NoError(q.t, err)
	return strings.Join(found, "")
}

func (q *queueing) queued() []string {
	key := q.key()
	if key == "" {
		return nil
	}
	ids, err := q.rdb.ZRange(q.t.Context(), key, 0, -1).Result()
	require.NoError(q.t, err)
	return ids
}

// ran waits until n calls have run, and returns what they have noted, in order.
func (q *queueing) ran(n int) (all []ran) {
	q.t.Helper()
	require.Eventually(q.t, func() bool {
		return int(q.rdb.LLen(q.t.Context(), "ran:"+q.backend).Val()) >= n
	}, 30*time.Second, 5*time.Millisecond, "%d calls run", n)
	notes, err := q.rdb.LRange(q.t.Context(), "ran:"+q.backend, 0, -1).Result()
	require.NoError(q.t, err)
	require.Len(q.t, notes, n)
	for _, note := range notes {
		var r ran
		var us int64
		_, err := fmt.Sscan(note, &r.number, &us, &r.fence)
		require.NoError(q.t, err)
		r.at = time.UnixMicro(us)
		all = append(all, r)
	}
	for i := range all[1:] {
		require.Greater(q.t, all[i+1].fence, all[i].fence)
	}
	return all
}

// release frees the key and returns when.
func (q *queueing) release() time.Time {
	at := time.Now()
	require.NoError(q.t, q.holder.Release(q.t.Context()))
	return at
}

// numbersBut returns the numbers of the calls from all processes but some.
func numbersBut(workers ...int) (numbers []int) {
	for i := range queuedCalls {
		out := false
		for _, w := range workers {
			out = out || i%queuers == w
		}
		if !out {
			numbers = append(numbers, i)
		}
	}
	return numbers
}

func requireOrder(t *testing.T, want []int, all []ran) {
	t.Helper()
	var got []int
	for _, r := range all {
		got = append(got, r.number)
	}
	require.Equal(t, want, got)
}

// requireGap returns the longest time between the begins of two runs, or from the release to the
// first. It fails if a waiter came because it asked again by itself, and not because the queue
// went on. How soon the queue does so is in the suite of backends.
func (q *queueing) requireGap(from time.Time, all []ran) (longest time.Duration) {
	q.t.Helper()
	for _, r := range all {
		longest = max(longest, r.at.Sub(from))
		from = r.at
	}
	q.t.Logf("the longest gap was %v", longest)
	require.Less(q.t, longest, fairTTL/4)
	return longest
}

func onEachFairServer(t *testing.T, f func(t *testing.T, backend, addrs string, server *redistest.Server)) {
	for _, backend := range []string{"single", "reentrant"} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			f(t, backend, server.Addr(), server)
		})
	}
}

func TestFair_servesProcessesInTheOrderInWhichTheirCallsCame(t *testing.T) {
	onEachFairServer(t, func(t *testing.T, backend, addrs string, server *redistest.Server) {
		q := newQueueing(t, backend, addrs, 0)
		server.ResetStats(t)
		from := q.release()
		all := q.ran(queuedCalls)
		requireOrder(t, numbersBut(), all)
		scripts := server.Calls(t)["evalsha"]
		took := all[queuedCalls-1].at.Sub(from)
		t.Logf("%d calls in %v, %v each beside the work; %d scripts after the release", queuedCalls, took, took/queuedCalls-workTime, scripts)
		require.LessOrEqual(t, scripts, int64(2+2*queuedCalls), "one to acquire and one to release")
	})
}

func TestFair_servesProcessesOfAClusterInTheOrderInWhichTheirCallsCame(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	var addrs []string
	for _, node := range cluster.Nodes {
		addrs = append(addrs, node.Addr())
	}
	q := newQueueing(t, "single", strings.Join(addrs, ","), 0)
	q.workers[1].Kill()
	from := q.release()
	all := q.ran(queuedCalls - queuedCalls/queuers)
	requireOrder(t, numbersBut(1), all)
	q.requireGap(from, all)
}

func TestFair_skipsAKilledProcessAndLeavesNothingBehind(t *testing.T) {
	onEachFairServer(t, func(t *testing.T, backend, addrs string, server *redistest.Server) {
		q := newQueueing(t, backend, addrs, 0)
		s := stage{backend, []*redistest.Server{server}}
		listeners := s.listeners(t)
		q.workers[0].Kill()
		q.workers[1].Kill()
		require.Eventually(t, func() bool { return s.listeners(t) == listeners/2 }, 20*time.Second, time.Millisecond, "their connections have gone")
		from := q.release()
		all := q.ran(queuedCalls / 2)
		requireOrder(t, numbersBut(0, 1), all)
		q.requireGap(from, all)

		rdb := server.Client(t)
		keys, err := rdb.Keys(t.Context(), "*").Result()
		require.NoError(t, err)
		for _, key := range keys {
			if strings.HasSuffix(key, ":fence") || strings.HasPrefix(key, "ran:") {
				continue
			}
			left, err := rdb.PTTL(t.Context(), key).Result()
			require.NoError(t, err)
			require.True(t, left > 0 || left == -2, "%s has no end: %v", key, left)
			require.LessOrEqual(t, left, 2*fairTTL, strconv.Quote(key))
		}
	})
}

// The holder has died, too, so its lease has to expire first.
func TestFair_skipsAFrozenProcessAndKeepsItsOtherWaiters(t *testing.T) {
	onEachFairServer(t, func(t *testing.T, backend, addrs string, _ *redistest.Server) {
		q := newQueueing(t, backend, addrs, 10*time.Second)
		require.NoError(t, q.workers[0].Freeze())
		require.NoError(t, q.workers[1].Freeze())
		all := q.ran(queuedCalls / 2)
		requireOrder(t, numbersBut(0, 1), all)
		gap := q.requireGap(q.ends, all)
		require.Greater(t, gap, driver.NotifyGrace, "the queue has waited for them")
		require.NoError(t, q.workers[0].Thaw())
		require.NoError(t, q.workers[1].Thaw())
		thawed := q.ran(queuedCalls)[queuedCalls/2:]
		last := thawed[len(thawed)-2:]
		require.ElementsMatch(t, []int{0, 1}, []int{last[0].number, last[1].number}, "a waiter that was notified and did not come has lost its position")
	})
}
