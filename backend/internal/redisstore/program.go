package redisstore

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

var (
	// ClockSource is Lua that reads the server's clock.
	//
	//go:embed clock.lua
	ClockSource string
	// CounterSource is Lua that reads and raises a fence counter. ClockSource comes before it.
	//
	//go:embed counter.lua
	CounterSource string
	//go:embed grant.lua
	grantSource string
	//go:embed together.lua
	togetherSource string
)

// A Program is how a backend takes keys and gives them back: two operations, which can run alone
// and many together.
type Program struct {
	acquire, release *operation
	together         *Script
}

// An operation is one of a program's two.
type operation struct {
	program    *Program
	alone      *Script
	keys, args int  // of one call
	records    bool // the last argument is a record
}

// mostTexts is how many keys and arguments an operation has at most, but for the record.
const mostTexts = 7

// Sources are the Lua of a Program.
type Sources struct {
	// AcquireKeys and the like are how many keys and arguments the operations have. The last
	// argument of release is a record.
	AcquireKeys, AcquireArgs, ReleaseKeys, ReleaseArgs int
	// Acquire and Release define local functions of these names, which take a call's keys and
	// arguments, each '' if it is empty, and what Together gives them beside. Common is what both
	// of them use. What acquire answers is said at Grant; release answers an integer.
	Common, Acquire, Release string
	// AcquireAlone and ReleaseAlone come before all that if the call is alone, and may answer it.
	AcquireAlone, ReleaseAlone string
	// Together serves many calls, with what together.lua defines.
	Together string
}

// NewProgram returns the program of these sources.
func NewProgram(s Sources) *Program {
	p := &Program{}
	p.acquire = &operation{
		program: p, keys: s.AcquireKeys, args: s.AcquireArgs,
		alone: NewScript(ClockSource + s.AcquireAlone + CounterSource + grantSource + s.Common + s.Acquire + run("acquire", s.AcquireKeys, s.AcquireArgs)),
	}
	p.release = &operation{
		program: p, keys: s.ReleaseKeys, args: s.ReleaseArgs, records: true,
		alone: NewScript(s.ReleaseAlone + s.Common + s.Release + run("release", s.ReleaseKeys, s.ReleaseArgs)),
	}
	p.together = NewScript(ClockSource + CounterSource + grantSource + s.Common + s.Acquire + s.Release + togetherSource + s.Together)
	return p
}

// run returns Lua that calls an operation's function for the only call.
func run(name string, keys, args int) string {
	var all []string
	for i := range keys {
		all = append(all, fmt.Sprintf("KEYS[%d]", i+1))
	}
	for i := range args {
		all = append(all, fmt.Sprintf("ARGV[%d] or ''", i+1))
	}
	return "return " + name + "(" + strings.Join(all, ", ") + ")\n"
}

// Acquire returns the command that runs acquire with these keys and arguments, as many as the
// Sources say.
func (p *Program) Acquire(texts ...string) Command { return p.acquire.on(texts, nil) }

// Release returns the command that runs release.
func (p *Program) Release(record []byte, texts ...string) Command { return p.release.on(texts, record) }

func (o *operation) on(texts []string, record []byte) Command {
	c := Command{script: o.alone, key: texts[0], of: o, record: record}
	copy(c.texts[:], texts)
	return c
}

// join returns the command that runs the programs' operations that the requests ask for, and the
// requests in the order of its answers. What its arguments are is said in together.lua.
func (p *Program) join(requests []*request) (Command, []*request) {
	ordered := make([]*request, 0, len(requests))
	for _, of := range [...]*operation{p.acquire, p.release} {
		for _, r := range requests {
			if r.call.of == of {
				ordered = append(ordered, r)
			}
		}
	}
	n := 0
	for n < len(ordered) && ordered[n].call.of == p.acquire {
		n++
	}
	acquires, releases := ordered[:n], ordered[n:]
	keys := n*p.acquire.keys + (len(ordered)-n)*p.release.keys
	args := append(make([]any, 0, keys+n*p.acquire.args+len(releases)*p.release.args+10), evalsha, p.together.sha, keys)
	for i := range max(p.acquire.keys, p.release.keys) {
		if i < p.acquire.keys {
			args = appendTexts(args, acquires, i)
		}
		if i < p.release.keys {
			args = appendTexts(args, releases, i)
		}
	}
	args = append(args, n, len(releases))
	args = p.acquire.appendColumns(args, acquires)
	args = p.release.appendColumns(args, releases)
	return Command{script: p.together, key: ordered[0].call.key, args: args}, ordered
}

// appendTexts appends the i-th text of each request.
func appendTexts(args []any, requests []*request, i int) []any {
	for _, r := range requests {
		args = append(args, r.call.text(i))
	}
	return args
}

// appendColumns appends the arguments of the requests.
func (o *operation) appendColumns(args []any, requests []*request) []any {
	texts := o.keys + o.args
	if o.records {
		texts--
	}
	for i := o.keys; i < texts; i++ {
		switch same := allSame(requests, i); {
		case !same:
			args = appendTexts(append(args, len(requests)), requests, i)
		case len(requests) == 0 || requests[0].call.texts[i] == "":
			args = append(args, none)
		default:
			args = append(args, one, requests[0].call.texts[i])
		}
	}
	if o.records {
		args = appendRecords(args, requests)
	}
	return args
}

var none, one any = 0, 1

// allSame reports whether the i-th text of all requests is the same.
func allSame(requests []*request, i int) bool {
	for _, r := range requests {
		if r.call.texts[i] != requests[0].call.texts[i] {
			return false
		}
	}
	return true
}

// appendRecords appends the records of the requests, or that they have none.
func appendRecords(args []any, requests []*request) []any {
	for _, r := range requests {
		if len(r.call.record) == 0 {
			continue
		}
		args = append(args, len(requests))
		for _, r := range requests {
			args = append(args, r.call.record)
		}
		return args
	}
	return append(args, none)
}

// Terms returns the arguments in which acquire finds what a claim asks for beside its key: the TTL
// in ms, the label, and what few claims ask for, see grant.lua.
func (s *Store) Terms(c driver.Claim) (ttl, label, special string) {
	last := s.terms.Load()
	if last == nil || !last.of(c) {
		last = &terms{c, milliseconds(c.TTL), s.special(c)}
		s.terms.Store(last)
	}
	return last.ttl, c.Label, last.special
}

func (s *Store) special(c driver.Claim) string {
	if c.Reserve <= 0 && c.Fence == 0 && c.Hint == 0 && s.minUptime == 0 {
		return ""
	}
	return fmt.Sprint(max(c.Reserve, 0), " ", c.Fence, " ", c.Hint, " ", s.uptimeSeconds())
}

// terms are those of the last claim: the next one's are mostly the same.
type terms struct {
	claim        driver.Claim
	ttl, special string
}

func (t *terms) of(c driver.Claim) bool {
	return t.claim.TTL == c.TTL && t.claim.Reserve == c.Reserve && t.claim.Fence == c.Fence && t.claim.Hint == c.Hint
}

// Leave returns the arguments by which release is told what to leave behind: "", or a letter and
// for how long; the label of a done marker, and its record.
func Leave(c driver.Claim, after driver.After) (leave, label string, record []byte) {
	switch {
	case after.Keep <= 0:
		return "", "", nil
	case after.Done:
		return "D" + milliseconds(after.Keep), c.Label, after.Record
	default:
		return "K" + milliseconds(after.Keep), "", nil
	}
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(Milliseconds(d), 10) }

// keysApart reports whether err says that the keys of one script must not be in several slots: a
// Cluster stands behind what looks like one server. Some proxies have words of their own for it.
func keysApart(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "CROSSSLOT") ||
		strings.Contains(strings.ToLower(err.Error()), "same slot"))
}

// refusesCommands reports whether err says that the user must not run a command of a script: a
// joint one needs more than those that take and give back a key each.
func refusesCommands(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "ACL failure in script") ||
		strings.Contains(err.Error(), "can't run this command or subcommand")) // before Redis 7
}
