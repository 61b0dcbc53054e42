package redisstore

import (
	"crypto/rand"
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

//go:embed queue.lua
var queueSource string

// A Queue is how a backend takes keys and gives them back for claims that see the line of those
// who wait: the operations of its Program, and what goes with them in the line.
type Queue struct{ acquire, release *Script }

// NewQueue returns the Queue of these sources, of which Together and what comes before calls that
// are alone are not used, and of Lua that defines the local function is_free(id), which says
// whether nobody has the key, KEYS[1]. The first argument of both operations is the ID.
func NewQueue(s Sources, free string) *Queue {
	queue := free + fmt.Sprintf("local grace = %d\n", Milliseconds(driver.NotifyGrace))
	try := "local give\nlocal function try()\n" + run("acquire", s.AcquireKeys, s.AcquireArgs) + "end\n"
	give := "local try\nlocal function give()\n" + run("release", s.ReleaseKeys, s.ReleaseArgs) + "end\n"
	return &Queue{
		acquire: NewScript(ClockSource + CounterSource + grantSource + s.Common + s.Acquire + queue + try + queueSource + fmt.Sprintf("return stand(%d, %d)\n", s.AcquireKeys, s.AcquireArgs)),
		release: NewScript(ClockSource + s.Common + s.Release + queue + give + queueSource + fmt.Sprintf("return leave(%d, %d)\n", s.ReleaseKeys, s.ReleaseArgs)),
	}
}

// A Line is where claims of one Locker stand in line. It is safe for concurrent use.
type Line struct {
	queue   *Queue
	notices *Notices
	locker  string // tells it from all others
	how     string
}

// Line returns the Line of a Locker, which hears by notices.
func (q *Queue) Line(notices *Notices) *Line {
	l := &Line{queue: q, notices: notices, locker: rand.Text(), how: "plain"}
	if notices.via != ViaPlain {
		l.how = "sharded"
	}
	return l
}

// Acquire returns the command that takes a key, or a place in line, for a claim that is not
// driver.Unqueued: keys and args are those of the Program's acquire.
func (l *Line) Acquire(c driver.Claim, keys []string, args ...any) Command {
	queued := "0"
	if c.Queue == driver.Queued {
		queued = "1"
	}
	line, places := lineKeys(keys[1], c.Key)
	return l.queue.acquire.On(append(keys, line, places), append(args, queued, l.locker, l.how, Milliseconds(c.TTL))...)
}

// Release returns the command that gives back a key, or a place in line. fence is the name of the
// key's fence counter, and leave what is left behind, as of Leave.
func (l *Line) Release(c driver.Claim, fence, leave string, keys []string, args ...any) Command {
	line, places := lineKeys(fence, c.Key)
	return l.queue.release.On(append(keys, line, places), append(args, l.how, leave)...)
}

// Listen is driver.Queuer's Queue.
func (l *Line) Listen(fence, key, id string, called func(in time.Duration)) (stop func()) {
	line, _ := lineKeys(fence, key)
	return l.notices.Hear(line+":"+l.locker, func(text string) {
		if text == "" { // we listen
			called(0)
			return
		}
		if wait, ok := strings.CutPrefix(text, id+" "); ok {
			if ms, err := strconv.Atoi(wait); err == nil {
				called(time.Duration(ms) * time.Millisecond)
			}
		}
	})
}

// lineKeys names the Redis keys of a key's line, in the slot of its fence counter, and so of its
// own.
func lineKeys(fence, key string) (line, places string) {
	prefix := strings.TrimSuffix(fence, "fence")
	return prefix + "line:" + key, prefix + "places:" + key
}
