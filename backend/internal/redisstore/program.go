package redisstore

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/seed-1795987d/onerun/guard"
)

var (
	// AccessSource is Lua that all programs begin with, and what else has a part in common with them.
	//
	//go:embed access.lua
	AccessSource string
	// grantSource is Lua that scripts which grant keys begin with.
	//
	//go:embed grant.lua
	grantSource string
	//go:embed together.lua
	togetherSource string
)

// A Program is how a backend takes keys and gives them back: two operations, which can run alone and many together.
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
const mostTexts = 6

// A Shape says how many keys and arguments the operations of a Program have. The last argument of release is the record.
type Shape struct{ AcquireKeys, AcquireArgs, ReleaseKeys, ReleaseArgs int }

// NewProgram returns the program of these sources: Lua that defines the local functions acquire(k, a) and release(k, a), which
// find their keys from KEYS[k+1] and their arguments from ARGV[a+1] on; in common, what both of them use; and together,
// which may set before_all and after_all. What acquire answers is said at Grant; release answers an integer.
func NewProgram(shape Shape, common, acquire, release, together string) *Program {
	p := &Program{}
	p.acquire = &operation{p, NewScript(AccessSource + grantSource + common + acquire + "return acquire(0, 0)\n"), shape.AcquireKeys, shape.AcquireArgs, false}
	p.release = &operation{p, NewScript(AccessSource + common + release + "return release(0, 0)\n"), shape.ReleaseKeys, shape.ReleaseArgs, true}
	p.together = NewScript(AccessSource + grantSource + common + acquire + release + together +
		fmt.Sprintf("local acquire_keys, acquire_args, release_keys, release_args = %d, %d, %d, %d\n",
			shape.AcquireKeys, shape.AcquireArgs, shape.ReleaseKeys, shape.ReleaseArgs) + togetherSource)
	return p
}

// Acquire returns the command that runs acquire with these keys and arguments, as many as the Shape says.
func (p *Program) Acquire(texts ...string) Command { return p.acquire.on(texts, nil) }

// Release returns the command that runs release.
func (p *Program) Release(record []byte, texts ...string) Command { return p.release.on(texts, record) }

func (o *operation) on(texts []string, record []byte) Command {
	c := Command{script: o.alone, key: texts[0], of: o, record: record}
	copy(c.texts[:], texts)
	return c
}

// join returns the command that runs the programs' operations that the requests ask for, and the requests in the order of
// its answers.
func (p *Program) join(requests []*request) (Command, []*request) {
	ordered := make([]*request, 0, len(requests))
	for _, of := range [...]*operation{p.acquire, p.release} {
		for _, r := range requests {
			if r.call.of == of {
				ordered = append(ordered, r)
			}
		}
	}
	keys, size := 0, 4
	for _, r := range requests {
		keys += r.call.of.keys
		size += r.call.of.keys + r.call.of.args
	}
	args := append(make([]any, 0, size), evalsha, p.together.sha, keys)
	acquires := 0
	for _, r := range ordered {
		args = r.call.appendKeys(args)
		if r.call.of == p.acquire {
			acquires++
		}
	}
	args = append(args, acquires)
	for _, r := range ordered {
		args = r.call.appendArgs(args)
	}
	return Command{script: p.together, key: ordered[0].call.key, args: args}, ordered
}

// Terms returns the argument in which acquire finds all that a claim asks for beside its key.
func (s *Store) Terms(c guard.Claim) string {
	if last := s.terms.Load(); last != nil && last.of(c) {
		return last.text
	}
	b := make([]byte, 0, 64+len(c.Label))
	for _, n := range [...]uint64{uint64(Milliseconds(c.TTL)), uint64(max(c.Reserve, 0)), c.Fence, c.Hint, uint64(s.uptimeSeconds())} {
		b = append(strconv.AppendUint(b, n, 10), ' ')
	}
	text := string(append(b, c.Label...))
	s.terms.Store(&terms{c, text})
	return text
}

// terms are those of the last claim: the next one's are mostly the same.
type terms struct {
	claim guard.Claim
	text  string
}

func (t *terms) of(c guard.Claim) bool {
	return t.claim.TTL == c.TTL && t.claim.Reserve == c.Reserve && t.claim.Fence == c.Fence && t.claim.Hint == c.Hint && t.claim.Label == c.Label
}

// Leave returns the arguments by which release is told what to leave behind: "", or a letter and for how long; the label of
// a done marker, and its record.
func Leave(c guard.Claim, after guard.After) (leave, label string, record []byte) {
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

// keysApart reports whether err says that the keys of one script must not be in several slots: a Cluster stands behind what
// looks like one server.
func keysApart(err error) bool {
	return err != nil && strings.Contains(err.Error(), "CROSSSLOT")
}
