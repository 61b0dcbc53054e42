package failover_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/processtest"
)

// ttl is so long that the holder does not renew its lease during a failover. By its own clock, the
// lease is then valid until the holder has heard of the other one.
const ttl = 45 * time.Second

// lag is how long a byte takes between two servers. The kernel takes some milliseconds to end a
// process that was killed, and to close its connections.
const lag = 5 * time.Millisecond

type locker = guard.Locker

// A deployment is the servers of a store.
type deployment interface {
	// ready returns when the servers are as at the beginning.
	ready(t testing.TB) scene
	// failOver is called once the victims have been killed. It returns when the store works again,
	// and has lost what it loses.
	failOver(t testing.TB)
}

// A scene is what a round needs of a deployment.
type scene struct {
	holder, asker link
	victims       []int  // the processes of servers that the holder kills
	key, free     string // the key that is held, and one that is not, on the same server
}

// A result is what was found in rounds.
type result struct {
	rounds, forgotten, backwards int
	away                         []time.Duration // without a grant, in each round
}

func (r *result) add(other result) {
	r.rounds += other.rounds
	r.forgotten += other.forgotten
	r.backwards += other.backwards
	r.away = append(r.away, other.away...)
}

// A lane is one deployment of a store, with the two processes that use it.
type lane struct {
	t             testing.TB
	deployment    deployment
	holder, asker *processtest.Child
	fences        map[string]uint64 // the largest of each key
	found         result
}

// rounds runs rounds on a deployment of its own.
func rounds(t testing.TB, start func(t testing.TB) deployment, n int) result {
	t.Helper()
	l := &lane{
		t: t, deployment: start(t), fences: map[string]uint64{},
		holder: processtest.Self(t, memberEnv+"=1"), asker: processtest.Self(t, memberEnv+"=1"),
	}
	for range n {
		l.round()
	}
	return l.found
}

// An answer is what a member says of a call.
type answer struct {
	says  string
	fence uint64
	at    int64
}

func (l *lane) next(m *processtest.Child) (a answer) {
	l.t.Helper()
	line := m.Next()
	_, err := fmt.Sscan(line, &a.says, &a.fence, &a.at)
	require.NoError(l.t, err, line)
	return a
}

// grant notes a fence. Each has to be larger than all before it.
func (l *lane) grant(key string, a answer) {
	if a.fence <= l.fences[key] {
		l.found.backwards++
		l.t.Logf("the fence of %s went from %d to %d", key, l.fences[key], a.fence)
	}
	l.fences[key] = max(l.fences[key], a.fence)
}

func (l *lane) round() {
	l.t.Helper()
	s := l.deployment.ready(l.t)
	var opening sync.WaitGroup
	for m, to := range map[*processtest.Child]link{l.holder: s.holder, l.asker: s.asker} {
		openMember(l.t, m, to)
		opening.Go(func() { m.Says("opened") })
	}
	opening.Wait()

	command := "hold " + s.key
	for _, pid := range s.victims {
		command += fmt.Sprint(" ", pid)
	}
	l.holder.Tell(command)
	held := l.next(l.holder)
	l.grant(s.key, held)
	l.asker.Tell("ask " + s.key)
	l.deployment.failOver(l.t)

	first := l.next(l.asker)
	if first.says == "busy" { // perhaps an answer from before
		l.asker.Tell("ask " + s.key)
		first = l.next(l.asker)
	}
	if first.says == "granted" {
		l.grant(s.key, first)
		if l.until() > first.at {
			l.found.forgotten++
		}
	} else {
		l.asker.Tell("take " + s.free)
		first = l.next(l.asker)
		l.grant(s.free, first)
	}
	l.found.rounds++
	l.found.away = append(l.found.away, time.Duration(first.at-held.at))
	l.release(l.asker)
	if s.holder.Addrs[0] == s.asker.Addrs[0] {
		l.release(l.holder)
	} else { // a release would not reach the server that has taken over
		l.asker.Tell("break " + s.key)
		l.asker.Says("broken")
	}
	l.asker.Tell("take " + s.key)
	l.grant(s.key, l.next(l.asker))
	l.release(l.asker)
}

// openMember tells a process to use a store.
func openMember(t testing.TB, m *processtest.Child, to link) {
	t.Helper()
	text, err := json.Marshal(to)
	require.NoError(t, err)
	m.Tell("open " + string(text))
}

// until returns when the context of the lease has ended, or that it has not.
func (l *lane) until() (at int64) {
	l.t.Helper()
	l.holder.Tell("until")
	_, err := fmt.Sscan(l.holder.Says("until"), &at)
	require.NoError(l.t, err)
	return at
}

func (l *lane) release(m *processtest.Child) {
	l.t.Helper()
	m.Tell("release")
	m.Says("released")
}

// acquire acquires a key in this process, and returns what releases it.
func acquire(t testing.TB, l locker, key string) (release func()) {
	t.Helper()
	g, err := guard.New(l)
	require.NoError(t, err)
	lease, err := g.Acquire(context.Background(), key)
	require.NoError(t, err)
	return func() {
		require.NoError(t, lease.Release(context.Background()))
		require.NoError(t, g.Close(context.Background()))
	}
}
