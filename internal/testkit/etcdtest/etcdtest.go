// Package etcdtest starts real etcd servers for tests, of the version in server/go.mod.
//
//	client, err := clientv3.New(clientv3.Config{Endpoints: etcdtest.Start(t).Endpoints()})
//
// With ONERUN_ETCD, tests use another program. StartOldest uses that of Debian's package
// etcd-server.
package etcdtest

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-1795987d/onerun/internal/testkit/certs"
	"github.com/seed-1795987d/onerun/internal/testkit/clocktest"
	"github.com/seed-1795987d/onerun/internal/testkit/daemon"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
)

const (
	// requireEnv names the variable that turns a left-out test into a failed one.
	requireEnv = "ONERUN_REQUIRE_ETCD"
	// oldestEnv names that for tests of the oldest server.
	oldestEnv = "ONERUN_REQUIRE_OLDEST_ETCD"
	// programEnv names the variable with the path of another program.
	programEnv = "ONERUN_ETCD"
)

// MinTTL is the shortest lease of the servers, which elect a leader faster than others do: etcd
// rounds up fifteen heartbeats to whole seconds.
const MinTTL = time.Second

// A Server is one etcd server, alone or in a cluster.
type Server struct {
	daemon       daemon.Daemon
	program      string
	name         string
	client, peer string   // URLs
	public       string   // the URL by which other servers reach it
	env          []string // beside that of the test
	network      *network
	cluster      string
	heartbeat    int // in milliseconds
	set          []string
	tls          *tls.Config // nil without TLS
}

// Start runs a server alone and returns when it answers. It is stopped when the test ends, and its
// log is shown if the test failed. If the program cannot be built, the test is skipped, or fails
// when ONERUN_REQUIRE_ETCD is set to anything. Settings, such as "quota-backend-bytes=20000000",
// replace those for tests.
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	return StartCluster(t, 1, settings...)[0]
}

// StartTLS is Start for a server that accepts only clients that have a certificate of c.
func StartTLS(t testing.TB, c *certs.Certs, settings ...string) *Server {
	t.Helper()
	return start(t, program(t), 1, nil, c, append(settings, "client-cert-auth", "trusted-ca-file="+c.CA, "cert-file="+c.Cert, "key-file="+c.Key))[0]
}

// StartOldest is Start for the server of Debian's package etcd-server, which is older. install.sh
// puts it into bin. If it is not there, the test is skipped, or fails when
// ONERUN_REQUIRE_OLDEST_ETCD is set to anything.
func StartOldest(t testing.TB) *Server {
	t.Helper()
	root, err := top()
	program := filepath.Join(root, "bin", "etcd")
	if err == nil {
		_, err = os.Stat(program)
	}
	if err != nil {
		leftout.Unless(t, oldestEnv, err, "Debian's etcd", "internal/verify/install.sh oldest-etcd")
	}
	return start(t, program, 1, nil, nil, nil)[0]
}

// StartCluster is Start for a cluster of n servers.
func StartCluster(t testing.TB, n int, settings ...string) []*Server {
	t.Helper()
	return start(t, program(t), n, nil, nil, settings)
}

// StartNetwork is StartCluster for servers that can be cut off from the others, see Isolate.
func StartNetwork(t testing.TB, n int, settings ...string) []*Server {
	t.Helper()
	return start(t, program(t), n, newNetwork(), nil, settings)
}

// StartClocks is StartCluster for servers each of which has a wall clock that the test moves. It
// compiles etcd with another package time, which the cache has from then on.
func StartClocks(t testing.TB, n int) ([]*Server, []*clocktest.Clock) {
	t.Helper()
	shifted := shiftedProgram(t)
	clocks := make([]*clocktest.Clock, n)
	for i := range clocks {
		clocks[i] = clocktest.New(t)
	}
	return start(t, shifted, n, nil, nil, nil, clocks...), clocks
}

// start starts a cluster, in a network unless that is nil, and by TLS unless c is nil. Each server
// has one of the clocks, if there are any.
func start(t testing.TB, program string, n int, network *network, c *certs.Certs, settings []string, clocks ...*clocktest.Clock) []*Server {
	t.Helper()
	ports := daemon.FreePorts(t, 2*n)
	servers, members := make([]*Server, n), make([]string, n)
	for i := range servers {
		s := &Server{
			program: program, name: fmt.Sprint("etcd", i), set: settings, network: network,
			client: "http://127.0.0.1:" + ports[2*i], peer: "http://127.0.0.1:" + ports[2*i+1],
		}
		if s.public = s.peer; network != nil {
			var proxy string
			s.public, proxy = network.add(t, s.name, ports[2*i+1])
			s.env = []string{"HTTP_PROXY=" + proxy} // the way to the others
		}
		if clocks != nil {
			s.env = clocks[i].Env()
		}
		if c != nil {
			s.client, s.tls = "https://127.0.0.1:"+ports[2*i], c.Config
		}
		s.daemon = daemon.Daemon{Name: "etcdtest", Bin: filepath.Dir(program), User: "root", Thaw: s.Thaw, Stop: syscall.SIGTERM}
		members[i] = s.name + "=" + s.public
		servers[i] = s
	}
	for i, s := range servers {
		s.cluster, s.heartbeat = strings.Join(members, ","), 10
		if n > 1 {
			s.heartbeat = 60 // or a busy machine has new leaders all the time
		}
		s.daemon.RunFor(t, func() error {
			// A server answers when a majority has started.
			return s.serve(i == len(servers)-1)
		})
	}
	for _, s := range servers {
		if err := s.await(); err != nil {
			t.Fatalf("etcdtest: start: %v", err)
		}
	}
	return servers
}

// serve starts the server on its data, and returns when it answers, if that is awaited.
func (s *Server) serve(wait bool) error {
	program := s.program
	args := []string{
		"--name=" + s.name, "--data-dir=" + s.daemon.Data(), "--unsafe-no-fsync", "--logger=zap", "--log-level=warn",
		fmt.Sprint("--election-timeout=", 10*s.heartbeat), fmt.Sprint("--heartbeat-interval=", s.heartbeat),
		"--listen-client-urls=" + s.client, "--advertise-client-urls=" + s.client,
		"--listen-peer-urls=" + s.peer, "--initial-advertise-peer-urls=" + s.public,
		"--initial-cluster=" + s.cluster,
	}
	for _, setting := range s.set {
		args = append(args, "--"+setting)
	}
	ready := s.ready
	if !wait {
		ready = func() error { return nil }
	}
	if len(s.env) > 0 {
		program, args = "/usr/bin/env", slices.Concat(s.env, []string{program}, args)
	}
	return s.daemon.Serve(ready, program, args...)
}

// ready returns nil if the server can answer, for which it needs a leader.
func (s *Server) ready() error {
	_, err := s.get("/health")
	return err
}

// get returns a page of the server.
func (s *Server) get(path string) (string, error) {
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{TLSClientConfig: s.tls}}
	defer client.CloseIdleConnections()
	answer, err := client.Get(s.client + path)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, text)
	}
	return string(text), err
}

// await returns when the server can answer.
func (s *Server) await() error {
	for deadline := time.Now().Add(daemon.Patience); ; time.Sleep(10 * time.Millisecond) {
		if err := s.ready(); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// Now returns the time by the server's wall clock, to a second.
func (s *Server) Now(t testing.TB) time.Time {
	t.Helper()
	answer, err := http.Get(s.client + "/version")
	if err != nil {
		t.Fatalf("etcdtest: %v", err)
	}
	defer answer.Body.Close()
	now, err := http.ParseTime(answer.Header.Get("Date"))
	if err != nil {
		t.Fatalf("etcdtest: %v", err)
	}
	return now
}

// Endpoints returns the address of the server, as clientv3.Config takes it.
func (s *Server) Endpoints() []string { return []string{s.client} }

// Isolate cuts a server of StartNetwork off from the others, until Rejoin. Clients still reach it.
func (s *Server) Isolate() { s.network.isolate(strings.TrimPrefix(s.public, "http://")) }

// Rejoin connects the server with the others again.
func (s *Server) Rejoin() { s.network.join(strings.TrimPrefix(s.public, "http://")) }

// PID returns the ID of the process.
func (s *Server) PID() int { return s.daemon.Process.PID() }

// Leader returns the server of a cluster that leads it, once one of those that run says so.
func Leader(t testing.TB, servers []*Server) *Server {
	t.Helper()
	for deadline := time.Now().Add(daemon.Patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		for _, s := range servers {
			if s.leads() {
				return s
			}
		}
	}
	t.Fatal("etcdtest: there is no leader")
	return nil
}

// leads tells whether the server is the leader by its own word. It needs no password for that.
func (s *Server) leads() bool {
	text, err := s.get("/metrics")
	return err == nil && strings.Contains(text, "\netcd_server_is_leader 1\n")
}

// Kill ends the server with SIGKILL.
func (s *Server) Kill() { s.daemon.Process.Kill() }

// Restart starts a server that was killed again, on its data.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	if err := s.serve(true); err != nil {
		t.Fatalf("etcdtest: restart: %v", err)
	}
}

// Erase deletes the data of a server that was killed.
func (s *Server) Erase(t testing.TB) {
	t.Helper()
	if err := os.RemoveAll(s.daemon.Data()); err != nil {
		t.Fatalf("etcdtest: erase: %v", err)
	}
}

// Restore replaces the data of a server that was killed with those of a snapshot, by etcdutl.
func (s *Server) Restore(t testing.TB, snapshot []byte, options ...string) {
	t.Helper()
	s.Erase(t)
	file := filepath.Join(s.daemon.Dir, "snapshot")
	err := os.WriteFile(file, snapshot, 0o644) //nolint:gosec // the user of the server reads it
	if err == nil {
		err = s.daemon.Run(tool(t, "go.etcd.io/etcd/etcdutl/v3"), append([]string{
			"snapshot", "restore", file, "--data-dir=" + s.daemon.Data(),
			"--name=" + s.name, "--initial-cluster=" + s.cluster, "--initial-advertise-peer-urls=" + s.public,
		}, options...)...)
	}
	if err != nil {
		t.Fatalf("etcdtest: restore: %v", err)
	}
}

// Freeze stops the server with SIGSTOP, until Thaw.
func (s *Server) Freeze(t testing.TB) {
	t.Helper()
	if err := s.daemon.Process.Freeze(); err != nil {
		t.Fatalf("etcdtest: freeze: %v", err)
	}
}

// Thaw lets a frozen server go on.
func (s *Server) Thaw() { _ = s.daemon.Process.Thaw() } // fails only if it has ended
