package guardhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/processtest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// lifeRoutes is what every process serves: /reject and /wait count their runs in Redis and answer
// with the name of the process. A header of the request says how long a run takes: X-Work is a
// duration, and X-Until a key in Redis for which the run waits. A retry may have another value.
// say is called with what happens.
func lifeRoutes(g *guard.Guard, rdb redis.UniversalClient, name string, say func(...any)) (http.Handler, error) {
	work := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// it goes on to its end, even if its lease is lost
		ctx := context.WithoutCancel(r.Context())
		run, err := rdb.Incr(ctx, "runs:"+idempotency.Key(ctx)).Result()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		say("begins", idempotency.Key(ctx))
		if d, err := time.ParseDuration(r.Header.Get("X-Work")); err == nil {
			time.Sleep(d) // the work that the request asked for
		}
		for until := r.Header.Get("X-Until"); until != "" && rdb.Exists(ctx, until).Val() == 0; {
			time.Sleep(lifePoll) // between two looks
		}
		w.Header().Set("Location", fmt.Sprint("/runs/", run))
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "run %d, by %s", run, name)
	})
	end := idempotency.WithObserver(func(_ context.Context, o idempotency.Outcome) {
		say("ends", o.Result, "kept", o.Kept, "lost", errors.Is(o.Err, guard.ErrLost))
	})
	reject, err := guardhttp.New(g, guardhttp.IdempotencyKey, guardhttp.WithScope(tenant), end)
	if err != nil {
		return nil, err
	}
	wait, err := guardhttp.New(g, guardhttp.IdempotencyKey, guardhttp.WithScope(tenant), end, idempotency.WithWait(10*time.Second))
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /reject", reject(work))
	mux.Handle("POST /wait", wait(work))
	return mux, nil
}

// lifeWorkerTTL is that of leases which end when their process is killed or paused.
const lifeWorkerTTL = 2 * time.Second

// lifeWork is a worker process: it serves lifeRoutes until its input ends, and says what happens.
func lifeWork(addr string) {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	g, err := guard.New(single.New(rdb), guard.WithNamespace("test"), guard.WithTTL(lifeWorkerTTL))
	if err != nil {
		fmt.Println("fails", err)
		return
	}
	var mu sync.Mutex
	routes, err := lifeRoutes(g, rdb, fmt.Sprint("process ", os.Getpid()), func(words ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Println(words...)
	})
	if err != nil {
		fmt.Println("fails", err)
		return
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println("fails", err)
		return
	}
	fmt.Println("listens", "http://"+listener.Addr().String())
	go func() { _ = http.Serve(listener, routes) }()
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// A lifeWorker is a process that serves lifeRoutes.
type lifeWorker struct {
	*processtest.Child
	url    string
	client *http.Client
}

// startLifeWorkers starts n worker processes, and returns when all of them listen.
func startLifeWorkers(t *testing.T, n int, addr string) []*lifeWorker {
	t.Helper()
	workers := make([]*lifeWorker, n)
	for i := range workers {
		workers[i] = &lifeWorker{Child: processtest.Self(t, lifeWorkerEnv+"="+addr), client: lifeClient(t)}
	}
	for _, w := range workers {
		w.url = w.Says("listens")
	}
	return workers
}

// start sends the worker a request in the background.
func (w *lifeWorker) start(ctx context.Context, path, key string, headers ...string) <-chan httpAnswer {
	answers := make(chan httpAnswer, 1)
	go func() { answers <- lifeSend(ctx, w.client, w.url+path, key, "b", headers...) }()
	return answers
}

func (w *lifeWorker) post(t *testing.T, path, key string) httpAnswer {
	t.Helper()
	a := lifeSend(t.Context(), w.client, w.url+path, key, "b")
	require.NoError(t, a.err)
	return a
}

// lifeRuns returns how often a handler ran for the key, in all processes.
func lifeRuns(t *testing.T, rdb redis.UniversalClient, key string) int {
	t.Helper()
	n, err := rdb.Get(t.Context(), "runs:"+key).Int()
	if !errors.Is(err, redis.Nil) {
		require.NoError(t, err)
	}
	return n
}

// Rows 7 and 8.
func TestProcesses_manyAtOnceOverFourProcesses(t *testing.T) {
	t.Parallel()
	const requests = 100
	server := redistest.Start(t)
	rdb := server.Client(t)
	workers := startLifeWorkers(t, 4, server.Addr())
	storm := func(t *testing.T, path, key string) (ran httpAnswer, replays, refused int) {
		var answers []<-chan httpAnswer
		for i := range requests {
			answers = append(answers, workers[i%len(workers)].start(t.Context(), path, key, "X-Work", "300ms"))
		}
		first := 0
		bodies := map[string]bool{}
		for _, c := range answers {
			a := lifeReceive(t, c, "an answer")
			require.NoError(t, a.err)
			switch {
			case a.status == http.StatusConflict:
				requireProblem(t, a, http.StatusConflict, idempotency.InFlight)
				refused++
				continue
			case a.replayed():
				replays++
			default:
				first++
				ran = a
			}
			require.Equal(t, http.StatusCreated, a.status)
			require.Equal(t, "/runs/1", a.header.Get("Location"))
			bodies[a.body] = true
		}
		require.Equal(t, 1, first)
		require.Len(t, bodies, 1)
		require.Equal(t, 1, lifeRuns(t, rdb, key))
		for _, w := range workers {
			requireReplay(t, w.post(t, path, key), http.StatusCreated, ran.body)
		}
		require.Equal(t, 1, lifeRuns(t, rdb, key))
		return ran, replays, refused
	}
	t.Run("reject", func(t *testing.T) {
		_, replays, refused := storm(t, "/reject", "k7")
		require.Equal(t, requests-1, replays+refused)
		require.Positive(t, refused)
	})
	t.Run("wait", func(t *testing.T) {
		_, replays, _ := storm(t, "/wait", "k8")
		require.Equal(t, requests-1, replays)
	})
}

// Row 12: requests that wait need not be sent again.
func TestProcesses_aWaitingOneRunsAfterTheOwnerWasKilled(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	workers := startLifeWorkers(t, 2, server.Addr())
	owner, other := workers[0], workers[1]
	first := owner.start(t.Context(), "/wait", "k", "X-Until", "never")
	require.Equal(t, "k", owner.Says("begins"))
	waiting := []<-chan httpAnswer{other.start(t.Context(), "/wait", "k"), other.start(t.Context(), "/wait", "k")}
	owner.Kill()
	require.Error(t, lifeReceive(t, first, "the end of a request").err)
	marked := 0
	for _, c := range waiting {
		a := lifeReceive(t, c, "an answer")
		require.NoError(t, a.err)
		require.Equal(t, fmt.Sprintf("run 2, by process %d", other.PID()), a.body)
		if a.replayed() {
			marked++
		}
	}
	require.Equal(t, 1, marked)
	require.Equal(t, 2, lifeRuns(t, rdb, "k"))
}

// Row 13.
func TestProcesses_aPausedOwnersAnswerIsNotStored(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	workers := startLifeWorkers(t, 2, server.Addr())
	owner, other := workers[0], workers[1]
	first := owner.start(t.Context(), "/wait", "k", "X-Until", "go")
	require.Equal(t, "k", owner.Says("begins"))
	require.NoError(t, owner.Freeze())
	b := other.post(t, "/wait", "k")
	requireRan(t, b, http.StatusCreated, fmt.Sprintf("run 2, by process %d", other.PID()))
	record := lifeDump(t, rdb)

	require.NoError(t, rdb.Set(t.Context(), "go", 1, 0).Err())
	require.NoError(t, owner.Thaw())
	a := lifeReceive(t, first, "an answer")
	requireRan(t, a, http.StatusCreated, fmt.Sprintf("run 1, by process %d", owner.PID()))
	require.Equal(t, "ran kept nothing lost true", owner.Says("ends"))
	for _, w := range workers {
		requireReplay(t, w.post(t, "/wait", "k"), http.StatusCreated, b.body)
	}
	after := lifeDump(t, rdb)
	delete(after, "go")
	require.Equal(t, record, after)
	require.Equal(t, 2, lifeRuns(t, rdb, "k"))
}
