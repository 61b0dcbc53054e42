package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const sentinelCount = 3

// sentinelConfig has %s for the port, the directory and the port of the master. A sentinel
// takes its configuration from a file only, and rewrites that file. Shorter than 500 ms, a
// master on a busy test machine is taken for dead.
const sentinelConfig = `port %s
bind 127.0.0.1
dir %s
sentinel monitor primary 127.0.0.1 %s 2
sentinel down-after-milliseconds primary 500
sentinel failover-timeout primary 2000
`

// Sentinel is a master with one replica, watched by three sentinels of which two must agree. A
// master that stays away for half a second is replaced about one second later.
//
// Master and Replica keep their first names: after a failover the Replica is the master, and
// the old Master, once it is back, becomes its replica.
type Sentinel struct {
	MasterName      string
	Master, Replica *Server
	Replicas        []*Server // all of them, the Replica first
	Sentinels       []*Server
	// Path is how the sentinels and the replica reach the Master, if the Sentinel was started with
	// StartSentinelWithPath. Clients reach it directly.
	Path *Path

	watchers []*redis.SentinelClient
	direct   *directory // nil without a lag

	mu     sync.Mutex
	master string // the address of the master when last seen
}

// StartSentinel returns when the sentinels know each other and the replica is in sync. The args
// go to the master and the replica.
func StartSentinel(t testing.TB, args ...string) *Sentinel {
	t.Helper()
	master := Start(t, args...)
	return startSentinel(t, master, master.Addr(), args, true)
}

// StartFarSentinel is StartSentinel with so many replicas, and with a lag between the servers. The
// addresses that sentinels give to clients have it as well: Direct has those without.
func StartFarSentinel(t testing.TB, replicas int, lag time.Duration, args ...string) *Sentinel {
	t.Helper()
	Require(t)
	direct := newDirectory()
	start := func(n int, more ...string) []*Server {
		return startAll(t, n, func(dir string, port *port) ([]string, error) {
			far := direct.far(t, port, lag)
			return slices.Concat(commandLine(dir, port), []string{"--replica-announce-port", far}, more, args), nil
		})
	}
	master := start(1)[0]
	s := &Sentinel{MasterName: "primary", Master: master, direct: direct}
	s.master = s.announced(master)
	_, port, err := net.SplitHostPort(s.master)
	if err != nil {
		t.Fatal(err)
	}
	s.Replicas = start(replicas, "--replicaof", loopback, port)
	s.Replica = s.Replicas[0]
	s.watchWith(t, port, true)
	return s
}

// StartSlowSentinel is StartSentinel with the usual periods between the messages of sentinels. It
// takes some 12 seconds.
func StartSlowSentinel(t testing.TB, args ...string) *Sentinel {
	t.Helper()
	master := Start(t, args...)
	return startSentinel(t, master, master.Addr(), args, false)
}

// StartSentinelWithPath is StartSentinel, but the sentinels and the replica reach the Master by
// Path. If that is closed, the sentinels replace a master that clients can still reach.
func StartSentinelWithPath(t testing.TB, args ...string) *Sentinel {
	t.Helper()
	master := Start(t, args...)
	path := StartPath(t, master.Addr())
	s := startSentinel(t, master, path.Addr(), args, true)
	s.Path = path
	return s
}

func startSentinel(t testing.TB, master *Server, addr string, args []string, hurried bool) *Sentinel {
	t.Helper()
	s := &Sentinel{MasterName: "primary", Master: master, master: addr}
	_, masterPort, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	replica := append([]string{"--replicaof", loopback, masterPort}, args...)
	s.Replica = Start(t, replica...)
	s.Replicas = []*Server{s.Replica}
	s.watchWith(t, masterPort, hurried)
	return s
}

// watchWith starts the sentinels, and waits until they see all servers.
func (s *Sentinel) watchWith(t testing.TB, masterPort string, hurried bool) {
	t.Helper()
	s.Sentinels = startAll(t, sentinelCount, func(dir string, port *port) ([]string, error) {
		file := filepath.Join(dir, "sentinel.conf")
		config := fmt.Sprintf(sentinelConfig, port, dir, masterPort)
		return []string{file, "--sentinel"}, os.WriteFile(file, []byte(config), 0o600)
	})
	for _, sentinel := range s.Sentinels {
		s.watchers = append(s.watchers, watch(t, sentinel.Addr()))
	}
	if hurried {
		s.hurry()
	}
	s.settle(t)
}

// settle waits until all sentinels see all others, and a master with its replicas.
func (s *Sentinel) settle(t testing.TB) {
	t.Helper()
	for _, watcher := range s.watchers {
		if err := poll(func() error { return s.settled(watcher) }); err != nil {
			t.Fatalf("redistest: sentinels of %s: %v", s.MasterName, err)
		}
	}
}

// Rejoin starts a server that has ended again, as a replica of the present master, and returns when
// the sentinels see that.
func (s *Sentinel) Rejoin(t testing.TB, old *Server) {
	t.Helper()
	old.Restart()
	s.mu.Lock()
	host, port, err := net.SplitHostPort(s.master)
	s.mu.Unlock()
	if err == nil {
		admin := old.Client(t)
		defer admin.Close()
		err = admin.ReplicaOf(context.Background(), host, port).Err()
	}
	if err != nil {
		t.Fatalf("redistest: rejoin %s: %v", old.Addr(), err)
	}
	s.settle(t)
}

// watch returns a client that gives up soon, for a sentinel may be frozen.
func watch(t testing.TB, addr string) *redis.SentinelClient {
	client := redis.NewSentinelClient(&redis.Options{
		Addr: addr, DisableIdentity: true, MaxRetries: -1, DialerRetries: 1,
		DialTimeout: time.Second, ReadTimeout: time.Second, WriteTimeout: time.Second,
	})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// hurry makes the sentinels talk more often than each 1, 2 and 10 seconds. Redis has
// SENTINEL DEBUG for its own tests since 7.0; without it everything still works, but later. The
// period of PING must be well below the half second after which a master is held for dead, and
// five of them well above one second: so old may the INFO of a replica be that is promoted, and
// INFO comes once a second while the master is down.
func (s *Sentinel) hurry() {
	for _, watcher := range s.watchers {
		_ = watcher.Process(context.Background(), redis.NewCmd(context.Background(), "sentinel", "debug",
			"info-period", 200, "publish-period", 200, "ping-period", 300, "ask-period", 100))
	}
}

// settled returns nil when one sentinel sees all the others and all replicas in sync.
func (s *Sentinel) settled(watcher *redis.SentinelClient) error {
	ctx := context.Background()
	master, err := watcher.Master(ctx, s.MasterName).Result()
	if err != nil {
		return err
	}
	replicas, err := watcher.Replicas(ctx, s.MasterName).Result()
	if err != nil {
		return err
	}
	peers, err := watcher.Sentinels(ctx, s.MasterName).Result()
	if err != nil {
		return err
	}
	seen := []string{master["flags"]}
	for _, replica := range replicas {
		seen = append(seen, replica["flags"]+" "+replica["master-link-status"])
	}
	for _, peer := range peers {
		seen = append(seen, peer["flags"])
	}
	want := "master, " + strings.Repeat("slave ok, ", len(s.Replicas)) + "sentinel, sentinel"
	if have := strings.Join(seen, ", "); have != want {
		return fmt.Errorf("a sentinel sees %q, not %q", have, want)
	}
	return nil
}

// announced returns the address of a server by which sentinels know it.
func (s *Sentinel) announced(server *Server) string {
	if s.direct == nil {
		return server.Addr()
	}
	return s.direct.announced(server)
}

// Direct returns the addresses of servers without the lag, by those that have it.
func (s *Sentinel) Direct() map[string]string { return s.direct.all() }

// SentinelAddrs are the addresses of the three sentinels.
func (s *Sentinel) SentinelAddrs() []string { return addrs(s.Sentinels) }

func addrs(servers []*Server) []string {
	all := make([]string, len(servers))
	for i, server := range servers {
		all[i] = server.Addr()
	}
	return all
}

// Client returns a go-redis client that follows the master, closed when the test ends. Each
// configure may change its options, which are else those of go-redis.
func (s *Sentinel) Client(t testing.TB, configure ...func(*redis.FailoverOptions)) *redis.Client {
	t.Helper()
	client := redis.NewFailoverClient(s.options(configure))
	t.Cleanup(func() { _ = client.Close() }) // the test may have closed it
	return client
}

func (s *Sentinel) options(configure []func(*redis.FailoverOptions)) *redis.FailoverOptions {
	options := &redis.FailoverOptions{
		MasterName: s.MasterName, SentinelAddrs: s.SentinelAddrs(), DisableIdentity: true,
	}
	if s.Path != nil {
		options.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if addr == s.Path.Addr() {
				addr = s.Master.Addr()
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		}
	}
	for _, change := range configure {
		change(options)
	}
	return options
}

// Failover has the sentinels make the replica the master by command, while the old master lives
// on, and returns the new master as WaitFailover does. It asks until they have done it: soon after
// another failover, a sentinel may still turn the new master back into a replica.
func (s *Sentinel) Failover(t testing.TB) *Server {
	t.Helper()
	return s.waitFailover(t, func() error {
		err := s.watchers[0].Failover(context.Background(), s.MasterName).Err()
		if redis.HasErrorPrefix(err, "INPROG") {
			return nil
		}
		return err
	})
}

// WaitFailover returns the new master when all sentinels that answer report the same one, and
// another than at the start or at the last WaitFailover. It fails the test after a minute.
func (s *Sentinel) WaitFailover(t testing.TB) *Server {
	t.Helper()
	return s.waitFailover(t, func() error { return nil })
}

// waitFailover calls ask again and again while all sentinels report the old master.
func (s *Sentinel) waitFailover(t testing.TB, ask func() error) *Server {
	t.Helper()
	s.mu.Lock()
	old := s.master
	s.mu.Unlock()
	var master string
	err := poll(func() (err error) {
		master, err = s.reported()
		if err == nil && master == old {
			err = errors.Join(fmt.Errorf("the master is still %s", master), ask())
		}
		return err
	})
	if err != nil {
		t.Fatalf("redistest: wait for the failover of %s: %v", s.MasterName, err)
	}
	s.mu.Lock()
	s.master = master
	s.mu.Unlock()
	for _, replica := range s.Replicas {
		if master == s.announced(replica) {
			return replica
		}
	}
	return s.Master
}

// reported asks all sentinels for the master; two of them must answer, and alike.
func (s *Sentinel) reported() (string, error) {
	var masters []string
	for _, watcher := range s.watchers {
		at, err := watcher.GetMasterAddrByName(context.Background(), s.MasterName).Result()
		if err == nil {
			masters = append(masters, net.JoinHostPort(at[0], at[1]))
		}
	}
	if len(masters) <= sentinelCount/2 {
		return "", fmt.Errorf("only %d of %d sentinels answer", len(masters), sentinelCount)
	}
	if len(slices.Compact(masters)) > 1 {
		return "", fmt.Errorf("the sentinels do not agree: %v", masters)
	}
	return masters[0], nil
}
