package doctor

import (
	"fmt"
	"slices"

	"github.com/seed-1795987d/onerun/cmd/onerun/internal/connect"
)

// backends says what each backend promises on the servers.
func backends(servers []*Server, of *connect.Servers, c Config) []Backend {
	switch {
	case of.Table != nil:
		on := map[string]func(*Server) Backend{postgresName: onPostgres, mysqlName: onMySQL, sqliteName: onSQLite}
		return []Backend{on[of.Table.Describe().Name](servers[0])}
	case of.Etcd != nil:
		return []Backend{onEtcd(servers[0])}
	case c.Backend == connect.RedLock:
		return []Backend{quorum(servers, len(of.Clients))}
	}
	all := []Backend{onOne(connect.Single, servers, c), onOne(connect.Reentrant, servers, c)}
	return append(all, Backend{Name: connect.RedLock, Promises: []string{}, Limits: []string{
		"needs three or more servers that fail independently: name them with --backend redlock"}})
}

// onOne says what a backend on one Redis promises.
func onOne(name string, servers []*Server, c Config) Backend {
	b := Backend{Name: name, Works: true, Promises: []string{}, Limits: []string{}}
	for _, s := range servers {
		b.Works = b.Works && !s.broken(name)
	}
	if !b.Works {
		b.Limits = append(b.Limits, problems(name, servers)...)
		return b
	}
	b.Promises = []string{
		"one holder of a key at a time, as long as the server keeps its data",
		"fences that grow, also across a restart, a flush and a failover",
	}
	if name == connect.Reentrant {
		b.Promises = append(b.Promises, "runs of one owner share a key; Redisson's RLock excludes them and is excluded")
		if c.Namespace == "" {
			b.Limits = append(b.Limits, "the rights to a key were tried on "+scratch+"-…; with --namespace, they are tried there")
		}
	}
	for _, s := range servers {
		b.Limits = append(b.Limits, s.limits(len(servers) > 1)...)
	}
	if name == c.Backend { // on which the features were tried
		b.lacks(servers)
	}
	return b
}

// broken reports whether the backend cannot grant leases on the server, or grants some that get
// lost while the server runs.
func (s *Server) broken(backend string) bool {
	return s.rights[backend] != nil || slices.ContainsFunc(s.Checks, func(c Check) bool {
		return c.State == Problem && !isTrial(c)
	})
}

// problems returns why a backend must not be used.
func problems(backend string, servers []*Server) (all []string) {
	for _, s := range servers {
		for _, c := range s.Checks {
			if c.State == Problem && !isTrial(c) {
				all = append(all, c.Name+": "+c.Text)
			}
		}
		if err := s.rights[backend]; err != nil {
			all = append(all, reason(err))
		}
	}
	return all
}

// isTrial reports whether the check is of one backend alone.
func isTrial(c Check) bool {
	return c.Name == "try "+connect.Single || c.Name == "try "+connect.Reentrant
}

// limits returns what leases on the server do not survive.
func (s *Server) limits(several bool) (all []string) {
	on := ""
	if several {
		on = s.Addr + ": "
	}
	switch keeps(s.facts.text("keeps")) {
	case keepsNothing:
		all = append(all, on+"a restart forgets leases and done markers, so work can run twice; WithMinUptime delays new leases")
	case keepsSnapshot:
		all = append(all, on+"a restart forgets the leases and markers since the last snapshot; WithMinUptime delays new leases")
	case keepsSecond:
		all = append(all, on+"a crash of the host can forget leases and markers of the last second")
	case keepsAll:
	}
	if s.facts.number("connected_slaves") > 0 {
		all = append(all, on+"a failover can forget the newest leases, so work can run twice: check the fence where it writes, or use WithReplicas")
	}
	return all
}

// lacks adds the features that do not work.
func (b *Backend) lacks(servers []*Server) {
	for _, f := range features {
		lacks := slices.ContainsFunc(servers, func(s *Server) bool { return s.rights[f.name] != nil })
		switch {
		case !lacks, f.name == connect.Single, f.name == connect.Reentrant:
		case f.name == "notifications":
			b.Limits = append(b.Limits, "no notifications: runs that wait ask a few times a second")
		default:
			b.Limits = append(b.Limits, "no "+f.name)
		}
	}
}

// quorum says what a RedLock promises on the nodes.
func quorum(servers []*Server, nodes int) Backend {
	b := Backend{Name: connect.RedLock, Promises: []string{}}
	good, forgets := 0, 0
	for _, s := range servers {
		if !s.broken(connect.Single) {
			good++
		}
		if keeps(s.facts.text("keeps")) != keepsAll {
			forgets++
		}
	}
	majority := nodes/2 + 1
	switch {
	case nodes < 3:
		b.Limits = []string{fmt.Sprintf("%d nodes, and it needs three or more", nodes)}
		return b
	case good < majority:
		b.Limits = []string{fmt.Sprintf("%d of %d nodes work, and it needs %d", good, nodes, majority)}
		return b
	}
	b.Works = true
	b.Promises = []string{
		fmt.Sprintf("one holder of a key at a time, as long as %d of %d nodes answer and keep their data", majority, nodes),
		fmt.Sprintf("%d more may fail now", good-majority),
		"fences that grow, whatever minority fails",
	}
	if nodes%2 == 0 {
		b.Limits = append(b.Limits, fmt.Sprintf("%d nodes survive no more failures than %d", nodes, nodes-1))
	}
	if forgets > 0 {
		b.Limits = append(b.Limits, fmt.Sprintf("%d nodes can forget leases in a restart or crash, so that a second majority forms; WithMinUptime delays their grants", forgets))
	}
	b.Limits = append(b.Limits, "no WithFair and no WithLimit")
	return b
}
