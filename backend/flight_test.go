package backend_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// An op is a claim, or its release.
type op struct {
	claim   driver.Claim
	release bool
	after   driver.After
}

func take(key, id string) op { return op{claim: claim(key, id)} }
func give(key, id string) op { return op{claim: claim(key, id), release: true} }

func claim(key, id string) driver.Claim {
	return driver.Claim{Key: key, ID: id, Owner: id, TTL: time.Hour}
}

// An answer is what the store says to an op.
type answer struct {
	grant driver.Answer
	held  bool
	err   error
}

// kind returns the kind of the error. It fails the test if there is none.
func (a answer) kind(t testing.TB) driver.StoreErrorKind {
	t.Helper()
	var failed *guard.StoreError
	require.ErrorAs(t, a.err, &failed)
	return failed.Kind
}

// A gate is a hook that can hold one of a client's commands.
type gate struct {
	mu    sync.Mutex
	next  chan struct{} // is closed when the command to hold has come, or nil
	open  chan struct{} // lets it go on
	sizes []int         // how many commands came at a time since
}

// hold holds the next command. came is closed when it is there, and open lets it go on.
func (g *gate) hold() (came, open chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.next, g.open, g.sizes = make(chan struct{}), make(chan struct{}), nil
	return g.next, g.open
}

// passed returns how many commands came at a time since the one that was held.
func (g *gate) passed() []int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.sizes
}

func (g *gate) pass(commands int) {
	g.mu.Lock()
	came, open := g.next, g.open
	g.next = nil
	if came == nil {
		g.sizes = append(g.sizes, commands)
	}
	g.mu.Unlock()
	if came != nil {
		close(came)
		<-open
	}
}

func (g *gate) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (g *gate) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		g.pass(1)
		return next(ctx, cmd)
	}
}

func (g *gate) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		g.pass(len(cmds))
		return next(ctx, cmds)
	}
}

// A batcher sends calls as one batch: those that come while a command is under way.
type batcher struct {
	locker guard.Locker
	gate   *gate
	sent   int
}

// batcherOn returns a batcher on the client, which nothing else uses.
func batcherOn(rdb *redis.Client, backend func(redis.UniversalClient) guard.Locker) *batcher {
	f := &batcher{gate: &gate{}, locker: backend(wrapped{rdb})}
	f.locker.(driver.Warner).Warnings(context.Background()) // then it batches
	rdb.AddHook(f.gate)
	return f
}

// A wrapped client is one from which backends derive no other clients. So all commands pass its
// hooks.
type wrapped struct{ redis.UniversalClient }

// send sends the ops. It returns the answers, and how many commands were sent at a time.
func (f *batcher) send(t testing.TB, ops ...op) ([]answer, []int) {
	t.Helper()
	came, open := f.gate.hold()

	var all sync.WaitGroup
	start := func(o op, done func(answer)) {
		all.Add(1)
		op := driver.OpAcquire
		if o.release {
			op = driver.OpRelease
		}
		driver.AsyncOf(f.locker).Start(t.Context(), op, []driver.Claim{o.claim}, o.after, func(_ int, a driver.Answer, err error) {
			if o.release {
				done(answer{held: a.Held, err: err})
			} else {
				done(answer{grant: a, err: err})
			}
			all.Done()
		})
	}
	f.sent++
	start(give(fmt.Sprint("{first}", f.sent), "first"), func(answer) {})
	<-came
	answers := make([]answer, len(ops))
	for i, o := range ops {
		start(o, func(a answer) { answers[i] = a })
	}
	close(open)
	all.Wait()
	return answers, f.gate.passed()
}

// together sends the ops as one batch. If the machine pauses, the batch may go out without some of
// them. together then sends all of them again, which must not change their answers.
func (f *batcher) together(t *testing.T, ops ...op) []answer {
	t.Helper()
	for range 100 {
		answers, sizes := f.send(t, ops...)
		if len(sizes) == 1 && sizes[0] == 1 {
			return answers
		}
	}
	t.Fatal("the ops never went out as one command")
	return nil
}

// many returns n ops, and those keys.
func many(n int, of func(key string) op) (ops []op) {
	for i := range n {
		ops = append(ops, of(fmt.Sprint("key", i)))
	}
	return ops
}
