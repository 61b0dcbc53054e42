package faults_test

import (
	"strings"
	"testing"

	"github.com/seed-1795987d/onerun/internal/testkit/clocktest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// A deployment is the servers of a backend. Workers reach them through proxies: each worker has
// paths of its own.
type deployment struct {
	backend  string
	servers  []*redistest.Server
	cluster  *redistest.Cluster  // or nil
	sentinel *redistest.Sentinel // or nil
	clocks   []*clocktest.Clock  // of the servers, or nil
}

func startDeployment(t testing.TB, backend string, r row) *deployment {
	args := r.args
	h := &deployment{backend: backend}
	if r.clocks {
		h.startWithClocks(t, args)
		return h
	}
	on, _, _ := strings.Cut(backend, " of ")
	switch on {
	case "cluster":
		h.cluster = redistest.StartCluster(t, args...)
		h.servers = h.cluster.Nodes
	case "sentinel", "sentinel-cluster":
		start := redistest.StartSentinel
		switch {
		case r.slow:
			start = redistest.StartSlowSentinel
		case r.path:
			start = redistest.StartSentinelWithPath
		}
		h.sentinel = start(t, args...)
		h.servers = []*redistest.Server{h.sentinel.Master, h.sentinel.Replica}
	case "redlock":
		h.servers = redistest.StartN(t, 5, args...)
	default:
		h.servers = redistest.StartN(t, 1, args...)
	}
	return h
}

// startWithClocks starts servers whose clocks can be moved.
func (h *deployment) startWithClocks(t testing.TB, args []string) {
	n := 1
	if h.backend == "redlock" {
		n = 5
	}
	for range n {
		server, clock := redistest.StartWithClock(t, args...)
		h.servers, h.clocks = append(h.servers, server), append(h.clocks, clock)
	}
}

// paths returns proxies, one to each server, and their addresses. A cluster and sentinels have no
// proxies, because they send their clients to the addresses of the servers themselves.
func (h *deployment) paths(t testing.TB) (proxies []*redistest.Proxy, addrs []string) {
	on, _, _ := strings.Cut(h.backend, " of ")
	switch on {
	case "cluster":
		for _, s := range h.servers {
			addrs = append(addrs, s.Addr())
		}
	case "sentinel", "sentinel-cluster":
		addrs = h.sentinel.SentinelAddrs()
	default:
		for _, s := range h.servers {
			p := redistest.StartProxy(t, s.Addr())
			proxies, addrs = append(proxies, p), append(addrs, p.Addr())
		}
	}
	return proxies, addrs
}

// majority returns the smallest majority of the servers. If there is one server, it is that one.
func (h *deployment) majority() []*redistest.Server { return h.servers[:len(h.servers)/2+1] }
