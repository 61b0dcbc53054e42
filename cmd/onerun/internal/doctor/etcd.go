package doctor

import (
	"context"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/seed-1795987d/onerun/cmd/onerun/internal/connect"
	"github.com/seed-1795987d/onerun/guard/driver"
)

const etcdName = "etcd"

// examineEtcd examines an etcd, which is one store, however many servers it has.
func examineEtcd(ctx context.Context, of *connect.Servers, c Config) []*Server {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	s := &Server{Addr: etcdName + " " + of.Address, rights: map[string]error{}}
	if of.Unverified {
		s.add("tls", Note, "anyone on the network could be the server: use tls=true, with --tls-ca for an authority of your own")
	}
	if s.reachEtcd(ctx, of.Etcd, c.Timeout/3) {
		s.checkMembers(ctx, of.Etcd)
		s.add("compaction", Unknown, "cannot be seen: the servers need --auto-compaction-retention, or the database fills up")
		s.tryTable(ctx, of, etcdName, c)
		for _, err := range of.Locker.(driver.Warner).Warnings(ctx) {
			s.add("settings", Note, "%s", strings.TrimPrefix(err.Error(), etcdName+": "))
		}
	}
	return []*Server{s}
}

// reachEtcd asks each server for its state, and reports whether one has answered within the limit.
func (s *Server) reachEtcd(ctx context.Context, client *clientv3.Client, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	type answer struct {
		*clientv3.StatusResponse
		took time.Duration
		err  error
	}
	endpoints := client.Endpoints()
	answers, reached := make([]answer, len(endpoints)), false
	var all sync.WaitGroup
	for i, endpoint := range endpoints {
		all.Go(func() {
			a := &answers[i]
			if _, a.err = client.Status(ctx, endpoint); a.err == nil { // it connects
				start := time.Now()
				a.StatusResponse, a.err = client.Status(ctx, endpoint)
				a.took = time.Since(start)
			}
		})
	}
	all.Wait()
	for _, a := range answers {
		reached = reached || a.err == nil
	}
	unreachable := Problem
	if reached {
		unreachable = Note
	}
	for i, a := range answers {
		if a.err != nil {
			s.add("reach", unreachable, "%s %s", endpoints[i], whyUnreachable(a.err))
			continue
		}
		s.add("reach", OK, "%s answers in %v", endpoints[i], a.took.Round(time.Microsecond))
		s.add("version", OK, "%s has etcd %s", endpoints[i], a.Version)
		s.checkStatus(endpoints[i], a.StatusResponse)
	}
	return reached
}

// checkStatus checks whether a server has a leader, and how full its database is.
func (s *Server) checkStatus(endpoint string, status *clientv3.StatusResponse) {
	if status.Leader == 0 {
		s.add("leader", Problem, "%s knows none: no majority of the servers runs", endpoint)
	}
	const mib = 1 << 20
	size, quota := status.DbSize, status.DbSizeQuota
	switch {
	case quota == 0: // before 3.6
		s.add("database", OK, "%s has %d MiB (the quota cannot be seen)", endpoint, size/mib)
	case size > quota/5*4:
		s.add("database", Note, "%s has %d MiB of a quota of %d MiB: compact and defragment it before it is full", endpoint, size/mib, quota/mib)
	default:
		s.add("database", OK, "%s has %d MiB of a quota of %d MiB", endpoint, size/mib, quota/mib)
	}
}

// checkMembers checks how many servers may fail.
func (s *Server) checkMembers(ctx context.Context, client *clientv3.Client) {
	members, err := client.MemberList(ctx)
	if err != nil {
		s.add("members", Unknown, "cannot be seen: %v", err)
		return
	}
	voters := 0
	for _, m := range members.Members {
		if !m.IsLearner {
			voters++
		}
	}
	switch {
	case voters == 1:
		s.add("members", Note, "1: if it fails, nothing is granted until it is back")
	case voters%2 == 0:
		s.add("members", Note, "%d survive no more failures than %d", voters, voters-1)
	default:
		s.add("members", OK, "%d: %d of them may fail", voters, (voters-1)/2)
	}
}

// onEtcd says what the backend promises on an etcd.
func onEtcd(s *Server) Backend {
	return s.onTable(etcdName, []string{
		"one holder of a key at a time: a majority has each lease, so no failover forgets one",
		"fences that grow, also across a failover and a loss of all data",
	}, "no WithFair", "after a crash, a key stays taken for up to a second longer than its TTL, and after a new leader for up to another TTL")
}
