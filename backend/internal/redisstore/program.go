package redisstore

import (
	_ "embed"
	"fmt"

	"github.com/seed-1795987d/onerun/guard/driver"
)

var (
	//go:embed clock.lua
	clockSource string
	//go:embed counter.lua
	counterSource string
	//go:embed grant.lua
	grantSource string
	//go:embed batch.lua
	batchSource string
	//go:embed queue.lua
	queueSource string
)

// A Program is how a backend acquires, renews and releases keys. The queued scripts do the same for
// claims that respect the queue of the key's waiters; they serve one call.
type Program struct {
	Acquire, Renew, Release      *Script
	queuedAcquire, queuedRelease *Script
}

// Sources are the Lua of a Program.
type Sources struct {
	Common                  string // comes before the operations, and after clock.lua
	Acquire, Renew, Release Operation
	// Free defines the local function is_free(id): whether nobody but that claim has the key,
	// KEYS[1].
	Free string
}

// An Operation defines the local function serve(i), which answers the i-th call. KEYS and ARGV have
// the keys and the arguments of the calls, in their order. shared(i) returns the i-th of the
// arguments that the calls have in common, or ”.
type Operation struct {
	Source             string
	Keys, Args, Shared int
	Record             bool // a record follows the shared arguments
	Fences             bool // the Lua uses counter.lua and grant.lua
}

// NewProgram returns the program of these sources.
func NewProgram(s Sources) *Program {
	return &Program{
		Acquire:       s.Acquire.script(s.Common),
		Renew:         s.Renew.script(s.Common),
		Release:       s.Release.script(s.Common),
		queuedAcquire: s.Acquire.queued(s.Common+s.Free, "enter"),
		queuedRelease: s.Release.queued(s.Common+s.Free, "leave"),
	}
}

// script returns the script of the operation for calls in batches.
func (o Operation) script(common string) *Script {
	return o.with(true, fmt.Sprintf("#KEYS / %d", o.Keys), common, batchSource)
}

// queued returns the script of the operation for one call that respects the queue, by a function
// of queue.lua. That is given how many keys and arguments come before its own.
func (o Operation) queued(common, function string) *Script {
	args := o.Args + o.Shared
	if o.Record {
		args++
	}
	return o.with(false, "1", common, fmt.Sprintf("local grace = %d\n%sreturn %s(%d, %d)\n",
		Milliseconds(driver.NotifyGrace), queueSource, function, o.Keys, args))
}

// with returns the operation's script for n calls, with Lua before and after its own.
func (o Operation) with(many bool, n, common, after string) *Script {
	frame := fmt.Sprintf("local n = %s\nlocal function shared(i) return ARGV[n * %d + i] or '' end\n", n, o.Args)
	if o.Fences {
		frame = counterSource + grantSource + frame
	}
	script := NewScript(clockSource + frame + common + o.Source + after)
	script.layout = layout{
		keys: o.Keys, args: o.Args, shared: o.Shared, record: o.Record, many: many,
	}
	return script
}
