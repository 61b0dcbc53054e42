// Package doctor checks the servers that a backend uses, and says what each backend promises on
// them.
//
//	report := doctor.Examine(ctx, servers, doctor.Config{Backend: "single"})
//
// It writes only keys of its own, which it releases. The exception are two small keys of a log
// named "onerun-doctor", which stay. It cannot see what happens later: a setting that changes, a
// failover, or a full memory.
package doctor

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/cmd/onerun/internal/connect"
)

// A State is the result of a check.
type State string

// The results of checks.
const (
	OK      State = "ok"
	Note    State = "note"    // worth knowing: a promise has a limit
	Problem State = "problem" // the backend does not work, or loses leases
	Unknown State = "unknown" // it cannot be seen, or not by this user
)

// A Check is one question to one server.
type Check struct {
	Name  string `json:"name"`
	State State  `json:"state"`
	Text  string `json:"text"`
}

// A Server is one server with its checks.
type Server struct {
	Addr   string  `json:"addr"`
	Checks []Check `json:"checks"`

	member bool // of a Cluster that is examined
	facts  facts
	rights map[string]error // by feature, why it does not work
}

// A Backend is what one of the backends promises on the servers.
type Backend struct {
	Name     string   `json:"name"`
	Works    bool     `json:"works"` // false: do not use it here
	Promises []string `json:"promises"`
	Limits   []string `json:"limits"` // what it does not promise
}

// A Report is all that was found.
type Report struct {
	Problems int       `json:"problems"`
	Servers  []*Server `json:"servers"`
	Backends []Backend `json:"backends"`
	// Namespaces are those that keys of the store seem to have, or nil if it could not be scanned.
	Namespaces []Namespace `json:"namespaces"`
	MoreKeys   bool        `json:"more_keys,omitempty"` // not all keys were scanned
}

// Config is what to examine.
type Config struct {
	Backend   string // that is used
	Namespace string
	Timeout   time.Duration // for one server
	Plain     []single.Option
}

// Examine examines all servers at the same time.
func Examine(ctx context.Context, servers *connect.Servers, c Config) *Report {
	r := &Report{}
	// first, so that doctor has no keys of its own yet
	if all, more, err := namespaces(ctx, servers.Locker, c); err == nil {
		r.Namespaces, r.MoreKeys = all, more
	}
	found := make([][]*Server, len(servers.Clients))
	var all sync.WaitGroup
	for i, client := range servers.Clients {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, c.Timeout)
			defer cancel()
			found[i] = examine(ctx, client, c)
		})
	}
	switch {
	case servers.Table != nil:
		found = [][]*Server{examineTable(ctx, servers, c)}
	case servers.Etcd != nil:
		found = [][]*Server{examineEtcd(ctx, servers, c)}
	}
	all.Wait()
	for _, some := range found {
		r.Servers = append(r.Servers, some...)
	}
	sameServer(r.Servers)
	for _, s := range r.Servers {
		for _, check := range s.Checks {
			if check.State == Problem {
				r.Problems++
			}
		}
	}
	r.Backends = backends(r.Servers, servers, c)
	used := func(b Backend) bool { return (b.Name == c.Backend || len(servers.Clients) == 0) && !b.Works }
	if r.Problems == 0 && slices.ContainsFunc(r.Backends, used) {
		r.Problems = 1
	}
	return r
}

// examine examines one Redis, which is several servers if it is a Cluster.
func examine(ctx context.Context, client redis.UniversalClient, c Config) []*Server {
	if cluster, ok := client.(*redis.ClusterClient); ok {
		return examineCluster(ctx, cluster, c)
	}
	one := client.(*redis.Client)
	s := &Server{Addr: one.Options().Addr}
	if s.reach(ctx, one) {
		s.look(ctx, one)
		s.try(ctx, client, c)
		s.checkScripts(ctx, client, c)
	}
	return []*Server{s}
}

// look asks a server about itself.
func (s *Server) look(ctx context.Context, client *redis.Client) {
	s.facts = readFacts(ctx, client)
	s.checkVersion()
	s.checkRole()
	s.checkMemory()
	s.checkPersistence(ctx, client)
	s.checkReplicas(ctx, client)
	s.checkClock(ctx, client)
}

func (s *Server) add(name string, state State, format string, args ...any) {
	s.Checks = append(s.Checks, Check{name, state, fmt.Sprintf(format, args...)})
}

// sameServer finds servers that are there twice, which count once for a quorum.
func sameServer(all []*Server) {
	seen := map[string]string{}
	for _, s := range all {
		id := s.facts.text("run_id")
		if id == "" {
			continue
		}
		if other, ok := seen[id]; ok {
			s.add("identity", Problem, "is the same server as %s", other)
		}
		seen[id] = s.Addr
	}
}
