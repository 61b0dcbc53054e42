package redisstore

import (
	"cmp"
	_ "embed"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"

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

	//go:embed publish.lua
	publishSource string

	// TimesSource is the Lua of times, for backends whose claims end by themselves.
	//go:embed times.lua
	TimesSource string
	// WantedSource is the Lua of wanted claims, for backends that share keys.
	//go:embed wanted.lua
	WantedSource string
)

// A Program is how a backend acquires, renews and releases keys.
type Program struct {
	Alone  Scripts // for claims that hold a key alone
	Shared Scripts // for claims that share a key, and for those with Claim.Repeated
}

// Scripts are those of the operations for one kind of claims.
type Scripts struct {
	Acquire, Renew, Release *Script
}

// script returns the script of an operation for a claim that is shared, see Program.Shared, or that
// respects the queue of the key's waiters, see queue.lua. A renewal does not matter to the queue.
func (p *Program) script(op driver.Op, shared, queued bool) *Script {
	scripts := &p.Alone
	if shared {
		scripts = &p.Shared
	}
	if op == driver.OpRenew {
		return scripts.Renew
	}
	script := scripts.Acquire
	if op == driver.OpRelease {
		script = scripts.Release
	}
	if queued {
		return script.Queued
	}
	return script
}

// Sources are the Lua of Scripts.
type Sources struct {
	Common                  string // comes before all operations, after clock.lua and counter.lua
	Acquire, Renew, Release Operation
	// Free defines the local function is_free(id) for claims that respect the queue: whether the
	// key, KEYS[1], is free for that claim. An operation may define it instead.
	Free string
}

// An Operation defines the local function serve(i), which answers the i-th call. KEYS are those of
// each call, and further ones. ARGV are those of each call, the shared ones, the record, and
// further ones. shared(i) returns the i-th shared one, or an empty string.
type Operation struct {
	Common string // comes after that of Sources
	Source string
	// Quick answers calls in fewer commands, in the script that serves many: it sets answers[i],
	// and counts them in answered. serve(i) answers the others. It cannot use grant.lua, which
	// comes later, and it has no clock without Fences.
	Quick      string
	Keys, Args int  // of each call
	Shared     int  // arguments that the calls have in common
	Record     bool // a record follows these
	Fences     bool // the Lua uses counter.lua and grant.lua
	Publishes  bool // the Lua uses publish.lua
	// FurtherKeys and FurtherArgs are how many of Call.FurtherKeys and Call.FurtherArgs the Lua
	// uses. With such keys, the script serves one call, of Program.Shared.
	FurtherKeys, FurtherArgs int
	Free                     string // instead of Sources.Free, if it is not ""
	// Admits is a Lua expression: whether the next waiter in the queue may also be granted after a
	// claim was. "" is false.
	Admits string
}

// A Script is a Lua script that the server knows by its hash.
type Script struct {
	source, sha any                         // strings, as arguments of commands
	of          Operation                   // says which keys and arguments calls have
	many        bool                        // the script serves many calls at once, see batch.lua
	Queued      *Script                     // for claims that respect the queue, or nil
	Literal     func() (source, sha string) // see toLiteral
}

// NewScript returns the script of that source. It serves one call, which has FurtherKeys and
// FurtherArgs only.
func NewScript(source string) *Script {
	return &Script{
		source: source, sha: redis.NewScript(source).Hash(),
		Literal: sync.OnceValues(func() (string, string) { return literalOf(source, 0) }),
	}
}

// NewScripts returns the scripts of these sources.
func NewScripts(s Sources) Scripts {
	all := Scripts{
		Acquire: s.Acquire.script(s.Common), Renew: s.Renew.script(s.Common), Release: s.Release.script(s.Common),
	}
	all.Acquire.Queued = s.Acquire.queued(s.Common+cmp.Or(s.Acquire.Free, s.Free), "enter")
	all.Release.Queued = s.Release.queued(s.Common+cmp.Or(s.Release.Free, s.Free), "leave")
	return all
}

// script returns the script of the operation for calls in batches, or for one call if it has
// further keys.
func (o Operation) script(common string) *Script {
	if o.FurtherKeys > 0 {
		return o.with(false, "1", common, "return serve(1)\n")
	}
	return o.with(true, fmt.Sprintf("#KEYS / %d", o.Keys), common, batchSource)
}

// queued returns the script of the operation for one call that respects the queue, by a function
// of queue.lua. That is given how many keys and arguments come before its own.
func (o Operation) queued(common, function string) *Script {
	keys, args := o.Keys+o.FurtherKeys, o.Args+o.Shared+o.FurtherArgs
	if o.Record {
		args++
	}
	o.Quick, o.Publishes = "", true
	return o.with(false, "1", common, fmt.Sprintf("local grace = %d\n%sreturn %s(%d, %d, %s)\n",
		Milliseconds(driver.NotifyGrace), queueSource, function, keys, args, cmp.Or(o.Admits, "false")))
}

// with returns the operation's script for n calls, with Lua before and after its own.
func (o Operation) with(many bool, n, common, after string) *Script {
	var before, quick, grants string
	if o.Fences || o.Quick == "" { // with a quick way, only fences need the clock
		before = clockSource
	}
	if o.Fences {
		before, grants = before+counterSource, grantSource
	}
	if o.Publishes {
		before += fmt.Sprintf("local CROWD = %d\n", crowd) + publishSource
	}
	before += fmt.Sprintf("local n = %s\nlocal function shared(i) return ARGV[n * %d + i] or '' end\n", n, o.Args)
	if o.Quick == "" {
		before, grants = before+grants, ""
	}
	if many {
		// What the quick way does not need comes after it: defining functions costs time.
		quick = "local answers, answered = {}, 0\n" + o.Quick + "if answered == n then\n" +
			"  return n == 1 and answers[1] or answers\nend\n"
	}
	source := before + common + o.Common + quick + grants + o.Source + after
	script := NewScript(source)
	script.Literal = sync.OnceValues(func() (string, string) {
		if many {
			return o.with(false, "1", common, "return serve(1)\n").Literal()
		}
		return literalOf(source, o.Keys+o.FurtherKeys)
	})
	script.of, script.many = o, many
	return script
}
