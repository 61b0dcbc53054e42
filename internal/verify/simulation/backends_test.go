package simulation_test

import (
	"github.com/seed-1795987d/onerun/backend/both"
	"github.com/seed-1795987d/onerun/backend/redlock"
	"github.com/seed-1795987d/onerun/backend/reentrant"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
)

// A backend is what a process keeps its leases in: servers, for each of which the process has a
// client, and a Locker.
type backend struct {
	name    string
	servers int
	queued  bool // it keeps a queue of waiters
	locker  func(p *process) guard.Locker
	casts   []cast
	nodes   int // in place of servers
}

// sharing is a node that grants a key to several claims at a time, and quorum is a quorum of them.
var (
	sharing = backend{"memory", 0, true, func(p *process) guard.Locker { return p.world.nodes[0].connect(p, p.life) }, sharingCasts, 1}
	quorum  = backend{"redlock", 0, false, func(p *process) guard.Locker {
		var nodes []guard.Locker
		for _, n := range p.world.nodes {
			nodes = append(nodes, remote{n, p, p.life})
		}
		return redlock.New(nodes)
	}, []cast{readers, several}, 5}
)

var backends = []backend{
	{"single", 1, true, func(p *process) guard.Locker { return closedBy(p, single.New(p.clients[0])) }, casts, 0},
	{"reentrant", 1, true, func(p *process) guard.Locker { return closedBy(p, reentrant.New(p.clients[0])) }, casts, 0},
	{"redlock", 5, false, func(p *process) guard.Locker {
		var nodes []guard.Locker
		for i, c := range p.clients {
			nodes = append(nodes, spread(p.world, p.world.servers[i].name, closedBy(p, single.New(c))))
		}
		return redlock.New(nodes)
	}, casts, 0},
	{"both", 2, false, func(p *process) guard.Locker { return stage(p, rollout(p.world.seed, p.number)) }, casts, 0},
}

// stage returns the backend of a process in a stage of a move from one server and layout to others:
// 0 is the old one alone, 1 both, and 2 the next one alone.
func stage(p *process, number int) guard.Locker {
	from := spread(p.world, p.world.servers[0].name, closedBy(p, single.New(p.clients[0])))
	to := spread(p.world, p.world.servers[1].name, closedBy(p, reentrant.New(p.clients[1])))
	switch number {
	case 0:
		return from
	case 2:
		return to
	}
	return both.New(from, to)
}

// rollout returns the stage of a process of the world of a seed: all are in the second, or some of
// them are in the first or the third.
func rollout(seed uint64, process int) int {
	if process%2 == 0 {
		return 1
	}
	return int(seed / 5 % 3)
}
