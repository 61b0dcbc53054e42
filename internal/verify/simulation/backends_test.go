package simulation_test

import (
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
	line    bool // it keeps those who wait in line
	locker  func(p *process) guard.Locker
}

var backends = []backend{
	{"single", 1, true, func(p *process) guard.Locker { return single.New(p.clients[0]) }},
	{"reentrant", 1, true, func(p *process) guard.Locker { return reentrant.New(p.clients[0]) }},
	{"redlock", 5, false, func(p *process) guard.Locker {
		var nodes []guard.Locker
		for i, c := range p.clients {
			nodes = append(nodes, spread(p.world, p.world.servers[i].name, single.New(c)))
		}
		return redlock.New(nodes)
	}},
}
