package servers_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// A mode is a way to run servers, and to reach them.
type mode struct {
	name, about string
	each        bool   // it is tried on each server, and not on the default one alone
	short       string // the backend on which the short form tries the first fault, or ""
	start       func(t *testing.T, backend string) *site
	faults      []fault
}

var modes = []mode{
	{name: "standalone", about: "one server, RESP3 (what go-redis does by default)", each: true, start: standalone, faults: onOneServer},
	{name: "Sentinel", about: "a master, a replica and three Sentinels", each: true, start: behindSentinel, faults: onSentinel},
	{name: "Cluster", about: "three masters", each: true, start: onCluster, faults: onNodes},
	{name: "RESP2", about: "`Protocol: 2`", short: "single",
		start: with("resp=2", func(o *redis.Options) { o.Protocol = 2 }), faults: onOneServer},
	{name: "database 5", about: "`DB: 5`", start: with("db=5", func(o *redis.Options) { o.DB = 5 }), faults: onOneServer},
	{name: "unix socket", about: "`Network: \"unix\"`", start: bySocket, faults: onOneServer},
	{name: "TLS", about: "TLS with client certificates", short: "single", start: byTLS, faults: onOneServer},
	{name: "ACL", about: "a user that has the rights of [acl.md](acl.md), and no other", short: "reentrant",
		start: asUser, faults: onOneServer},
}

// A site is servers in a mode.
type site struct {
	connect func(t testing.TB) redis.UniversalClient // of a process of its own
	servers []*redistest.Server
	// conns is a field that CLIENT LIST shows for each connection of the clients, or "".
	conns    string
	sentinel *redistest.Sentinel
	cluster  *redistest.Cluster

	// What follows is for the suite.
	forget func(t testing.TB)
	freeze func(t testing.TB) (thaw func())
}

// flush makes the servers forget everything.
func (s *site) flush(t testing.TB) {
	t.Helper()
	for _, server := range s.servers {
		require.NoError(t, server.Client(t).FlushAll(t.Context()).Err())
	}
}

// one returns a site of one server, to which clients connect with their options.
func one(server *redistest.Server, conns string, configure ...func(*redis.Options)) *site {
	s := &site{
		connect: func(t testing.TB) redis.UniversalClient { return server.Client(t, configure...) },
		servers: []*redistest.Server{server}, conns: conns,
		freeze: func(testing.TB) func() { server.Freeze(); return server.Thaw },
	}
	s.forget = s.flush
	return s
}

func standalone(t *testing.T, _ string) *site { return one(redistest.Start(t), "") }

func with(conns string, configure func(*redis.Options)) func(*testing.T, string) *site {
	return func(t *testing.T, _ string) *site { return one(redistest.Start(t), conns, configure) }
}

func bySocket(t *testing.T, _ string) *site {
	dir, err := os.MkdirTemp("", "onerun") // that of t is too long for a socket
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	socket := filepath.Join(dir, "s")
	server := redistest.Start(t, "--unixsocket", socket)
	return one(server, "laddr="+socket+":0", func(o *redis.Options) { o.Network, o.Addr = "unix", socket })
}

func byTLS(t *testing.T, _ string) *site {
	server := redistest.StartTLS(t)
	return one(server.Server, "laddr="+server.TLSAddr, func(o *redis.Options) {
		o.Addr, o.TLSConfig = server.TLSAddr, server.Config
	})
}

// asUser gives the user, on the command line so that it survives a restart, the rights of all that
// the suite does, but no others. With reentrant it has them for all keys, as the suite locks more
// than import:*.
func asUser(t *testing.T, backend string) *site {
	lines := redistest.ACLLines(t, "../../../docs/acl.md")
	var rules []string
	titles := []string{backend, backend + ", WithFair", backend + ", cron"}
	if backend == "single" {
		titles = append(titles, backend+", WithShared or WithLimit")
	}
	for _, title := range titles {
		require.Contains(t, lines, title)
		for _, rule := range strings.Fields(lines[title])[3:] {
			if !slices.Contains(rules, rule) {
				rules = append(rules, rule)
			}
		}
	}
	if slices.Contains(rules, "~import:*") {
		// A pattern beside ~* is an error.
		rules = slices.DeleteFunc(rules, func(rule string) bool { return strings.HasPrefix(rule, "~") })
		rules = append(rules, "~*")
	}
	server := redistest.Start(t, append([]string{"--user", "app"}, rules...)...)
	return one(server, "user=app", func(o *redis.Options) { o.Username, o.Password = "app", "secret" })
}

// requireUndenied asserts that no user was refused anything.
func (s *site) requireUndenied(t *testing.T) {
	t.Helper()
	if s.conns != "user=app" {
		return
	}
	denied, err := s.servers[0].Client(t).ACLLog(t.Context(), 100).Result()
	require.NoError(t, err)
	for _, entry := range denied {
		if !strings.HasPrefix(entry.Object, "client") {
			require.Fail(t, "denied", "%s %s %s", entry.Reason, entry.Context, entry.Object)
		}
	}
}

func behindSentinel(t *testing.T, _ string) *site { return sentinelSite(redistest.StartSentinel(t)) }

func isolable(t *testing.T, _ string) *site {
	return sentinelSite(redistest.StartSentinelWithPath(t))
}

func sentinelSite(sentinel *redistest.Sentinel) *site {
	return &site{
		connect:  func(t testing.TB) redis.UniversalClient { return sentinel.Client(t) },
		servers:  []*redistest.Server{sentinel.Master},
		sentinel: sentinel,
	}
}

func onCluster(t *testing.T, _ string) *site {
	cluster := redistest.StartCluster(t)
	s := &site{
		connect: func(t testing.TB) redis.UniversalClient { return cluster.Client(t) },
		servers: cluster.Nodes, cluster: cluster,
	}
	s.forget = s.flush
	return s
}

// requireConns asserts that all connections to the server but those of the test are of the mode.
func (s *site) requireConns(t *testing.T) {
	t.Helper()
	if s.conns == "" {
		return
	}
	rdb := s.servers[0].Client(t, func(o *redis.Options) { o.ClientName = "looks" })
	text, err := rdb.ClientList(t.Context()).Result()
	require.NoError(t, err)
	seen := 0
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if slices.Contains(fields, "name=looks") {
			continue
		}
		seen++
		require.Contains(t, fields, s.conns, "a connection of another mode: %s", line)
	}
	require.Positive(t, seen)
}
