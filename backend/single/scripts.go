package single

import (
	"fmt"
	"sync"

	"github.com/seed-1795987d/onerun/backend/internal/redisstore"
)

// scripts are the programs of a Locker.
type scripts struct {
	program    *redisstore.Program
	inspection *redisstore.Inspection
}

// A dialect is how the scripts of a Locker differ from those of another one.
type dialect struct {
	sharded bool // on a Cluster, where PUBLISH would go to all nodes
	plain   bool // WithPlainKeys
}

// common returns the Lua that all scripts begin with. LEAD and HELD are what a lease, and one that
// is held, begin with.
func (d dialect) common() string {
	text := fmt.Sprintf("local sharded = %t\n", d.sharded)
	if d.plain {
		return text + "local LEAD, HELD = '" + lead + "', '" + lead + "H'\n" + plainSource
	}
	return text + "local LEAD, HELD = '', 'H'\n"
}

// publishing returns the Lua that publishes the release of a key.
func (d dialect) publishing() string {
	if d.plain {
		return publishSource + "local publish_on = publish\n" +
			"local function publish(key) publish_on(channel_of(key)) end\n"
	}
	return publishSource
}

func newScripts(d dialect) *scripts {
	alone := d.alone()
	program := &redisstore.Program{Alone: alone, Shared: alone}
	if !d.plain {
		program.Shared = d.shared()
	}
	return &scripts{program: program, inspection: newInspection(d)}
}

var (
	ofServer       = newScripts(dialect{})
	ofCluster      = newScripts(dialect{sharded: true})
	plainOfServer  = sync.OnceValue(func() *scripts { return newScripts(dialect{plain: true}) })
	plainOfCluster = sync.OnceValue(func() *scripts { return newScripts(dialect{sharded: true, plain: true}) })
)

func (d dialect) scripts() *scripts {
	switch {
	case d.sharded && d.plain:
		return plainOfCluster()
	case d.plain:
		return plainOfServer()
	case d.sharded:
		return ofCluster
	default:
		return ofServer
	}
}
