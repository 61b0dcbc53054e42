package simulation_test

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/proto"
)

// A server is a miniredis with a clock that can be wrong. It can be frozen or away, which it
// survives with its data, or lose that.
type server struct {
	name   string
	number int
	world  *world
	frozen instant // until when it takes up nothing
	away   instant // until when it cannot be reached
	// is full while a request is carried out, so that the changes of two requests that come at one
	// instant stay apart
	turn chan struct{}

	forgets instant  // until when it is to be flushed at the worst moment
	last    *process // of which the last request was

	mu     sync.Mutex
	redis  *miniredis.Miniredis
	links  map[*link]bool
	offset time.Duration // of its clock
	leases map[string]stored
}

func newServer(w *world, number int) *server {
	s := &server{name: fmt.Sprintf("s%d", number), number: number, world: w, links: map[*link]bool{}, turn: make(chan struct{}, 1)}
	s.start()
	return s
}

// start starts an empty miniredis. s.mu must be held, but for the first time.
func (s *server) start() {
	s.redis = miniredis.NewMiniRedis()
	s.redis.ClockTTL(true)
	s.redis.SetTime(time.Now().Add(s.offset))
	s.leases = nil
}

// setClock sets miniredis' clock. Once set, that clock does not advance.
func (s *server) setClock() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.redis.SetTime(time.Now().Add(s.offset))
}

func (s *server) isAway() bool { return time.Now().Before(s.away.get()) }

func (s *server) connect(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.far = s.dial()
	s.links[l] = true
}

// dial connects to miniredis. s.mu must be held.
func (s *server) dial() net.Conn {
	conn, err := s.redis.Dial()
	if err != nil {
		panic(err)
	}
	return conn
}

// leave makes the server unreachable for a while and cuts its connections, each at an instant of
// its own.
func (s *server) leave(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away.set(time.Now().Add(settle + d))
	for l := range s.links {
		time.AfterFunc(upTo(s.world.rng(l.name+" end"), settle), l.close)
	}
	clear(s.links)
}

// settle is how long it takes until the last connection to a server that has gone is cut.
const settle = 2 * time.Millisecond

// restart is a restart without persistence.
func (s *server) restart(d time.Duration) {
	s.leave(d)
	time.Sleep(settle)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.redis.Close()
	s.start()
}

func (s *server) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.redis.FlushAll()
	s.leases = nil
}

// forget flushes a server, of which that was decided, at the worst moment: before it carries out
// a request of another process than the last one, while it has issued or reserved fences that its
// clock has not passed. The last process may still hand off a lease under these. When all is to be
// calm, that moment is over. s.turn must be full.
func (s *server) forget(from *process) {
	last := s.last
	s.last = from
	if last == from || s.world.calm() || !time.Now().Before(s.forgets.get()) || !s.isAhead() {
		return
	}
	s.forgets.set(time.Time{})
	s.world.flush(s, 0)
}

// isAhead reports whether a fence counter is ahead of the clock.
func (s *server) isAhead() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now().Add(s.offset)
	clock := uint64(now.Unix())<<20 + uint64(now.Nanosecond()/1000)
	for _, key := range s.redis.Keys() {
		if !strings.HasSuffix(key, "}:fence") {
			continue
		}
		text, _ := s.redis.Get(key)
		if last, err := strconv.ParseUint(text, 10, 64); err == nil && last > clock {
			return true
		}
	}
	return false
}

// jump sets the clock forward, which ends leases early, or back, which makes them last longer:
// Redis keeps the instant at which a key ends, and miniredis the time left.
func (s *server) jump(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now().Add(s.offset)
	s.redis.SetTime(now)
	s.redis.Keys() // takes what has passed so far off the TTLs
	if d < 0 {
		s.redis.FastForward(d)
	}
	s.offset += d
	s.redis.SetTime(now.Add(d))
	s.look()
}

// forgetScripts is SCRIPT FLUSH.
func (s *server) forgetScripts() {
	s.mu.Lock()
	defer s.mu.Unlock()
	client := proto.NewClient(s.dial())
	defer client.Close()
	if _, err := client.Do("SCRIPT", "FLUSH"); err != nil {
		panic(err)
	}
}

func (s *server) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.redis.Close()
}
