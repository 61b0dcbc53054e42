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
)

// A Role is what a process of a fleet is.
type Role struct {
	ID      string
	Kind    string   // how it locks
	Addrs   []string // of the servers of its lock
	Witness string   // the address of the witness
}

// An Acquire acquires the lock. It returns an error if it cannot before ctx ends. fence is 0 if
// the lock has none.
type Acquire func(ctx context.Context) (fence uint64, release func() error, err error)

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

// enter notes that a member has the lock. KEYS: the members that have it, those that were killed,
// overlaps, stale fences, the highest fence, runs by kind. ARGV: the member, its kind, its fence.
var enter = redis.NewScript(`
if redis.call('SISMEMBER', KEYS[2], ARGV[1]) == 1 then return 0 end
local others = redis.call('SMEMBERS', KEYS[1])
if #others > 0 then
  redis.call('RPUSH', KEYS[3], ARGV[1] .. ' beside ' .. table.concat(others, ', '))
end
redis.call('SADD', KEYS[1], ARGV[1])
local fence, highest = tonumber(ARGV[3]), tonumber(redis.call('GET', KEYS[5]) or '0')
if fence > 0 and fence <= highest then
  redis.call('RPUSH', KEYS[4], ARGV[1] .. ' has ' .. ARGV[3] .. ' after ' .. redis.call('GET', KEYS[5]))
elseif fence > 0 then
  redis.call('SET', KEYS[5], ARGV[3])
end
redis.call('HINCRBY', KEYS[6], ARGV[2], 1)
return 1`)

const (
	inside   = "witness:inside"
	killed   = "witness:killed"
	overlaps = "witness:overlaps"
	stale    = "witness:stale"
	highest  = "witness:highest"
	runs     = "witness:runs"
)

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
	for ctx.Err() == nil {
		if err := once(ctx, role, witness, acquire); err != nil {
			return err
		}
		time.Sleep(rand.N(pause)) // so that others have the lock, too
	}
	return nil
}

func once(ctx context.Context, role Role, witness *redis.Client, acquire Acquire) error {
	trying, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	fence, release, err := acquire(trying)
	if err != nil {
		return nil // it was busy, or the time is up
	}
	keys := []string{inside, killed, overlaps, stale, highest, runs}
	ctx = context.WithoutCancel(ctx)
	if err := enter.Run(ctx, witness, keys, role.ID, role.Kind, fence).Err(); err != nil {
		return err
	}
	time.Sleep(rand.N(hold)) // the work
	if err := witness.SRem(ctx, inside, role.ID).Err(); err != nil {
		return err
	}
	return release()
}
