package fleettest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/guard"
)

// A Role is what a process of a fleet is.
type Role struct {
	ID      string
	Kind    string   // how it locks
	Addrs   []string // of the servers of its lock
	Witness string   // the address of the witness
}

// An Acquire acquires the lock. It returns an error if it cannot before ctx ends.
type Acquire func(ctx context.Context) (Lock, error)

// By returns an Acquire by a Guard on a Locker.
func By(l guard.Locker) (Acquire, error) {
	g, err := guard.New(l, guard.WithTTL(TTL), guard.WithWait(guard.Forever))
	return func(ctx context.Context) (Lock, error) {
		lease, err := g.Acquire(ctx, "report")
		if err != nil {
			return Lock{}, err
		}
		return Lock{Fence: lease.Fence(), Release: func() error { return lease.Release(context.Background()) }}, nil
	}, err
}

// A Lock is what a member has acquired.
type Lock struct {
	Fence   uint64 // 0 if the lock has none
	Release func() error
	// Held asks the servers of the lock whether this member still holds it, and returns what they
	// have said. It is called while the member has the lock, if another member has it, too. It is
	// nil if an overlap is a fault whoever holds the lock.
	Held func() (held bool, seen string)
}

const (
	// TTL is for how long the lock of a member should last. It is far longer than what a member
	// does with it, so that a slow machine does not make locks expire.
	TTL = 3 * time.Second
	// patience is for how long a member waits for the lock before it tries again.
	patience = time.Second
	// hold and pause bound for how long a member has the lock, and how long it does without.
	hold  = 3 * time.Millisecond
	pause = 20 * time.Millisecond
)

// enterSource notes that a member has the lock. KEYS: the stays of members that have it, members
// that were killed, overlaps, how many each stay has, stale fences, the highest fence, runs by
// kind. ARGV: the member, its kind, its stay, its fence.
const enterSource = `
if redis.call('SISMEMBER', KEYS[2], ARGV[1]) == 1 then return 0 end
for _, other in ipairs(redis.call('HVALS', KEYS[1])) do
  redis.call('RPUSH', KEYS[3], ARGV[3], other)
  redis.call('HINCRBY', KEYS[4], ARGV[3], 1)
  redis.call('HINCRBY', KEYS[4], other, 1)
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
local fence, highest = tonumber(ARGV[4]), tonumber(redis.call('GET', KEYS[6]) or '0')
if fence > 0 and fence <= highest then
  redis.call('RPUSH', KEYS[5], ARGV[1] .. ' has ' .. ARGV[4] .. ' after ' .. redis.call('GET', KEYS[6]))
elseif fence > 0 then
  redis.call('SET', KEYS[6], ARGV[4])
end
redis.call('HINCRBY', KEYS[7], ARGV[2], 1)
return 1`

// leaveSource notes that a member does not have the lock any more, unless it has more overlaps than
// it knows of. It returns how many it has. KEYS: as of enterSource, without all after the fourth.
// ARGV: the member, its stay, of how many overlaps it knows.
const leaveSource = `
local overlaps = redis.call('HGET', KEYS[4], ARGV[2]) or '0'
if overlaps == ARGV[3] then redis.call('HDEL', KEYS[1], ARGV[1]) end
return tonumber(overlaps)`

var enter, leave = redis.NewScript(enterSource), redis.NewScript(leaveSource)

// A stay is the time from when a member acquires the lock until it releases the lock.
const (
	inside   = "witness:inside" // the stay of each member that has the lock
	killed   = "witness:killed"
	overlaps = "witness:overlaps" // pairs of stays: the later one, the earlier one
	counts   = "witness:counts"   // of the overlaps of each stay
	stale    = "witness:stale"
	highest  = "witness:highest"
	runs     = "witness:runs"
	holders  = "witness:holders" // stays whose lock was held at their end, after all overlaps
	seen     = "witness:seen"    // what the servers said then
)

var keys = []string{inside, killed, overlaps, counts, stale, highest, runs}

// scriptEnv is the variable that has the Script of a member that is another program.
const scriptEnv = "ONERUN_FLEET_MEMBER"

// A Script is what a member that is another program needs to know. It asks the witness by Enter,
// with all keys, and by Leave, with the first four. Times are in milliseconds.
type Script struct {
	Role
	Enter, Leave               string
	Keys                       []string
	TTL, Patience, Hold, Pause int64
}

func newScript(r Role) Script {
	return Script{
		Role: r, Enter: enterSource, Leave: leaveSource, Keys: keys, TTL: TTL.Milliseconds(),
		Patience: patience.Milliseconds(), Hold: hold.Milliseconds(), Pause: pause.Milliseconds(),
	}
}

// Serve is the main function of a member: it takes the lock again and again, until a line comes
// in, or the input ends.
func Serve(text string, open func(Role) (Acquire, error)) {
	if err := serve(text, open); err != nil {
		fmt.Println("fails:", err)
		os.Exit(1)
	}
}

func serve(text string, open func(Role) (Acquire, error)) error {
	var role Role
	if err := json.Unmarshal([]byte(text), &role); err != nil {
		return err
	}
	acquire, err := open(role)
	if err != nil {
		return err
	}
	witness := redis.NewClient(&redis.Options{Addr: role.Witness})
	defer witness.Close()
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		bufio.NewScanner(os.Stdin).Scan()
		stop()
	}()
	fmt.Println("ready")
	for n := 1; ctx.Err() == nil; n++ {
		if err := once(ctx, role, fmt.Sprintf("%s#%d", role.ID, n), witness, acquire); err != nil {
			return err
		}
		time.Sleep(rand.N(pause)) // so that others have the lock, too
	}
	return nil
}

// once is one stay.
func once(ctx context.Context, role Role, stay string, witness *redis.Client, acquire Acquire) error {
	trying, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	lock, err := acquire(trying)
	if err != nil {
		return nil // it was busy, or the time is up
	}
	ctx = context.WithoutCancel(ctx)
	if err := enter.Run(ctx, witness, keys, role.ID, role.Kind, stay, lock.Fence).Err(); err != nil {
		return err
	}
	time.Sleep(rand.N(hold)) // the work
	for known := 0; ; {
		n, err := leave.Run(ctx, witness, keys[:4], role.ID, stay, known).Int()
		if err != nil {
			return err
		}
		if n == known {
			return lock.Release()
		}
		if err := testify(ctx, witness, stay, lock); err != nil {
			return err
		}
		known = n
	}
}

// testify notes whether the lock is held at the end of a stay. It then was throughout the stay.
func testify(ctx context.Context, witness *redis.Client, stay string, lock Lock) error {
	if lock.Held == nil {
		return nil
	}
	held, said := lock.Held()
	_, err := witness.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.HSet(ctx, seen, stay, said)
		if held {
			p.SAdd(ctx, holders, stay)
		} else {
			p.SRem(ctx, holders, stay)
		}
		return nil
	})
	return err
}
