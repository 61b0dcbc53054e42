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

// common returns the Lua that all scripts begin with. HOW is how to publish. LEAD and HELD are what
// a lease, and one that is held, begin with.
func (d dialect) common() string {
	how := ""
	if d.sharded {
		how = "sharded"
	}
	if d.plain {
		return fmt.Sprintf("local HOW, LEAD, HELD = '%s', '%s', '%sH'\n", how, lead, lead) + plainSource
	}
	return fmt.Sprintf("local HOW, LEAD, HELD = '%s', '', 'H'\n", how)
}

// publishing returns the Lua that publishes a message for the waiters of a key, see publish.lua.
func (d dialect) publishing() string {
	return "local FREE, ALL = '0', '1'\n" +
		"local function publish(key, message) publish_to(HOW, " + d.channel("key") + ", message) end\n"
}

// channel returns the Lua of the channel on which the releases of a key are published.
func (d dialect) channel(key string) string {
	if d.plain {
		return "channel_of(" + key + ")"
	}
	return key
}

func newScripts(d dialect) *scripts {
	alone := d.alone()
	program := &redisstore.Program{Alone: alone, Shared: alone}
	if !d.plain {
		program.Shared = d.shared()
	}
	return &scripts{program: program, inspection: newInspection(d)}
}

var made sync.Map // *scripts by dialect

// scripts returns the scripts of the dialect, which are made once.
func (d dialect) scripts() *scripts {
	all, ok := made.Load(d)
	if !ok {
		all, _ = made.LoadOrStore(d, newScripts(d))
	}
	return all.(*scripts)
}
