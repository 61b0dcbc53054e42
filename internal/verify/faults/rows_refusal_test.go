package faults_test

import (
	"context"
	"regexp"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// Faults of servers that are up and refuse.
var refusalRows = []row{
	{number: 14, name: "a script that blocks the server", backends: everyone, args: []string{"--busy-reply-threshold", "50"}, run: scriptBlocks,
		shows: renewals(driver.KindScriptBusy)},
	{number: 15, name: "out of memory", backends: everyone, ci: []string{"reentrant"}, run: outOfMemory,
		shows: map[string]string{"": `^onerun.acquire.unknown\{error.type=oom`, "redlock": `^onerun.node.operation.duration\{error.type=oom`}},
	{number: 16, name: "READONLY", backends: everyone, run: refuses(driver.KindReadOnly, setReplica("127.0.0.1", "1"), setReplica("no", "one")),
		shows: renewals(driver.KindReadOnly)},
	{number: 16, name: "NOREPLICAS", backends: everyone, run: refuses(driver.KindNoReplicas, setConfig("min-replicas-to-write", "1"), setConfig("min-replicas-to-write", "0")),
		shows: renewals(driver.KindNoReplicas)},
	{number: 16, name: "LOADING", backends: everyone, args: []string{"--key-load-delay", "1000", "--loading-process-events-interval-bytes", "1024"}, run: loads,
		shows: map[string]string{"": `^onerun.acquire.unknown\{error.type=loading`, "redlock": `^onerun.node.operation.duration\{error.type=loading`}},
	{number: 16, name: "too many clients", backends: everyone, run: tooManyClients,
		shows: map[string]string{"": `^onerun.acquire.unknown\{error.type=(limit|connection)`, "redlock": `^onerun.node.operation.duration\{error.type=(limit|connection)`}},
}

// renewals is the metric that shows that renewals fail: in RedLock, with which of the nodes.
func renewals(kind driver.StoreErrorKind) map[string]string {
	return map[string]string{"": `^` + regexp.QuoteMeta(renewalFails("single", kind)), "redlock": `^` + regexp.QuoteMeta(renewalFails("redlock", kind))}
}

// renewalFails begins the line of that metric.
func renewalFails(backend string, kind driver.StoreErrorKind) string {
	if backend == "redlock" {
		return "onerun.node.operation.duration{error.type=" + string(kind)
	}
	return "onerun.renew.duration{error.type=" + string(kind)
}

// patient is the TTL of a lease that outlasts a fault which a renewal has met.
const patient = 6 * time.Second

func patiently(t *task) { t.TTL = patient }

// requireMetric waits until a worker has seen a fault.
func (s *scene) requireMetric(w *worker, metric string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return strings.Contains(w.ask("metrics"), metric) }, 2*patient, 20*time.Millisecond,
		"%s has not seen %s: %s", w.task.Process, metric, w.ask("metrics"))
}

// requireRefused has a worker ask for "new" until it is refused with one of the given kinds. On a
// busy machine, the first answers may come too late.
func (s *scene) requireRefused(w *worker, kinds ...driver.StoreErrorKind) {
	s.t.Helper()
	for begun := time.Now(); ; {
		said, granted := w.try("hold new")
		require.False(s.t, granted, "the fault was not in force")
		for _, kind := range kinds {
			if strings.Contains(said, ": "+string(kind)+": ") {
				s.proven(true, "a claim was refused: %s", said)
				return
			}
		}
		require.Less(s.t, time.Since(begun), calmLimit, "it was refused otherwise: %s", said)
	}
}

// requireOutlasted asserts that the lease of a worker on "k", of which a renewal has met a fault
// that is over, is renewed from now on.
func (s *scene) requireOutlasted(w *worker) {
	s.t.Helper()
	s.pass(patient)
	require.Equal(s.t, "true", w.ask("valid k"), "it was renewed as soon as it could be: %s", w.ask("metrics"))
	w.ask("release k")
}

// block has servers run a script that never ends, and returns when they refuse everything else.
// What it returns ends that.
func (s *scene) block(servers []*redistest.Server) (unblock func()) {
	s.t.Helper()
	var admins []*redis.Client
	ended := make(chan error, len(servers))
	for _, server := range servers {
		rdb := server.Client(s.t, func(o *redis.Options) { o.MaxRetries, o.ReadTimeout = -1, time.Minute })
		admins = append(admins, rdb)
		go func() { ended <- rdb.Eval(context.Background(), "while true do end", nil).Err() }()
	}
	for _, rdb := range admins {
		require.Eventually(s.t, func() bool {
			return redis.HasErrorPrefix(rdb.Ping(context.Background()).Err(), "BUSY")
		}, calmLimit, time.Millisecond)
	}
	return func() {
		for _, rdb := range admins {
			require.Eventually(s.t, func() bool { return rdb.ScriptKill(context.Background()).Err() == nil }, calmLimit, time.Millisecond)
		}
		for range admins {
			require.ErrorContains(s.t, <-ended, "killed")
		}
	}
}

func scriptBlocks(s *scene) {
	w := s.worker(patiently)
	w.ask("hold k " + calmLimit.String())
	w.ask("write k")
	short := s.worker()
	short.ask("hold short " + calmLimit.String())
	s.loop(2)
	unblock := s.block(s.deployment.majority())
	s.requireRefused(s.worker(patiently), driver.KindScriptBusy)
	require.Equal(s.t, string(guard.LossExpired), short.ask("lost short "+calmLimit.String()))
	s.requireMetric(w, renewalFails(s.deployment.backend, driver.KindScriptBusy))
	unblock()
	short.try("release short") // the server may have had it for a moment longer, and renewed it
	s.requireOutlasted(w)
	s.keys["k"], s.keys["short"], s.keys["new"] = true, true, true
}

func outOfMemory(s *scene) {
	const shortTTL = 2 * time.Second
	w := s.worker(withTTL(shortTTL))
	w.ask("hold k " + calmLimit.String())
	w.ask("write k")
	w.ask("await once once once=1m")
	w.ask("got once")
	s.loop(2)
	s.configure("maxmemory", "1")
	s.requireRefused(w, driver.KindOOM)
	s.pass(shortTTL * 5 / 4)
	require.Equal(s.t, "true", w.ask("valid k"), "it was renewed")
	w.ask("release k")
	w.ask("finish once")
	s.configure("maxmemory", "0")
	w.ask("await again once once=1m")
	answer, ok := w.try("got again")
	require.False(s.t, ok)
	require.Contains(s.t, answer, "is done", "the marker was left")
	s.keys["k"], s.keys["new"] = true, true
}

// configure sets a parameter of the servers without most of which there is no lease.
func (s *scene) configure(name, value string) {
	s.t.Helper()
	for _, server := range s.deployment.majority() {
		require.NoError(s.t, setConfig(name, value)(server.Client(s.t)))
	}
}

func setConfig(name, value string) func(*redis.Client) error {
	return func(rdb *redis.Client) error { return rdb.ConfigSet(context.Background(), name, value).Err() }
}

func setReplica(host, port string) func(*redis.Client) error {
	return func(rdb *redis.Client) error { return rdb.Do(context.Background(), "replicaof", host, port).Err() }
}

// refuses is a row in which servers refuse to write, in a way that a call says.
func refuses(kind driver.StoreErrorKind, fault, end func(*redis.Client) error) func(s *scene) {
	return func(s *scene) {
		w := s.worker(patiently)
		w.ask("hold k " + calmLimit.String())
		w.ask("write k")
		s.loop(2)
		for _, server := range s.deployment.majority() {
			require.NoError(s.t, fault(server.Client(s.t)))
		}
		other := s.worker(patiently)
		s.requireRefused(other, kind)
		other.ask("await new new")
		s.requireMetric(w, renewalFails(s.deployment.backend, kind))
		require.Equal(s.t, "true", other.ask("waits new"))
		for _, server := range s.deployment.majority() {
			require.NoError(s.t, end(server.Client(s.t)))
		}
		other.ask("got new")
		other.ask("release new")
		s.requireOutlasted(w)
		s.keys["k"], s.keys["new"] = true, true
	}
}

// loads has servers restart with what they have on disk, the lease on "k" among that, which takes
// them seconds to read.
func loads(s *scene) {
	w := s.worker(func(t *task) { t.TTL = 10 * patient })
	w.ask("hold k " + calmLimit.String())
	w.ask("write k")
	for _, server := range s.deployment.majority() {
		rdb := server.Client(s.t)
		require.NoError(s.t, rdb.Do(context.Background(), "debug", "populate", 6000).Err())
		require.NoError(s.t, rdb.Save(context.Background()).Err())
		server.Restart()
	}
	other := s.worker(patiently)
	s.requireRefused(other, driver.KindLoading)
	other.ask("await new new")
	other.ask("got new")
	other.ask("release new")
	require.Equal(s.t, "true", w.ask("valid k"))
	w.ask("release k")
	s.keys["k"], s.keys["new"] = true, true
}

// tooManyClients has servers take no more clients than they have. Those that they have go on.
func tooManyClients(s *scene) {
	w := s.worker(patiently)
	w.ask("hold k " + calmLimit.String())
	w.ask("write k")
	s.loop(2)
	var admins []*redis.Client
	for _, server := range s.deployment.majority() {
		rdb := server.Client(s.t)
		admins = append(admins, rdb)
		require.NoError(s.t, setConfig("maxclients", "1")(rdb))
	}
	other := s.worker(patiently)
	// Redis says why and closes the connection: the reset can overtake the words.
	s.requireRefused(other, driver.KindLimit, driver.KindConnection)
	other.ask("await new new")
	s.pass(ttl)
	require.Equal(s.t, "true", other.ask("waits new"))
	for _, rdb := range admins {
		require.NoError(s.t, setConfig("maxclients", "1000")(rdb))
	}
	other.ask("got new")
	other.ask("release new")
	s.requireOutlasted(w)
	s.keys["k"], s.keys["new"] = true, true
}
