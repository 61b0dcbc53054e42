package single

import (
	_ "embed"
	"strconv"
	"strings"

	"github.com/seed-1795987d/onerun/backend/internal/redisstore"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// WithPlainKeys stores the lease of a key at name(key), the Redis key of another library's lock. A
// process with this option and one with that library then exclude each other, so that a rolling
// deployment can replace the library. The key that name is given begins with the namespace of the
// Guard, if it has one. name must be a pure function, and safe for concurrent use.
//
//	redsync, redislock   the name of the mutex: return key
//	gocron-redis-lock    guardgocron.PlainKeys(namespace), for the locks of a guardgocron.Locker
//	ShedLock             "job-lock:" + environment + ":" + key
//	rueidislock          "rueidislock:0:" + key, and so on, see below
//
// The lease is a string that begins with "onerun:". A string that does not is the lock of another
// program. The key is then busy (guard.BusyError.Foreign), and nothing notifies waiters of its
// release. So they ask for the key a few times a second. Package inspect shows it as a holder
// (driver.Holder.Foreign) with its value as the ID, or "sha1:" and a digest of one that is longer
// than 128 bytes or cannot be printed. BreakNow deletes it if it still has that value. Any other
// type is an error of the kind driver.KindWrongType that names the Redis key, and is left as it is.
//
// Other programs see a lock that is held, whatever it is: a lease, a done marker for its window, or
// a minimum hold. They cannot distinguish these, and they wait or skip.
//
// By default, ShedLock ends or extends its lock by a bare DEL or SET XX, even if that has expired
// and another process holds the lock. This can end a lease of this package. The holder learns it
// at its next renewal, and the next holder has a larger fence.
//
// redsync over several pools is backend/redlock over a Locker with this option for each of the
// servers. rueidislock has 2m-1 names for each lock, m being its KeyMajority (2 by default):
// guard.Guard.DoAll over all of them excludes it.
//
// Claims cannot share a key (guard.WithShared, guard.WithLimit). A key can be used if its name is
// none of Onerun's own, and if its braces, if any, enclose a hash tag. Package inspect lists keys
// only if name puts something before the key, after it, or both. The keys of the fence, of queues
// and of logs have names of Onerun's own.
//
// guard.New refuses nil. Defaults to none: leases have names that no other program uses.
func WithPlainKeys(name func(key string) string) Option {
	return func(l *Locker) {
		if name == nil {
			l.store.Refuse("WithPlainKeys", "nil", "must not be nil")
			return
		}
		l.name = name
	}
}

//go:embed plain.lua
var plainSource string

// lead is what the leases of a Locker WithPlainKeys begin with. A lease without it begins with one
// letter, and so may the value of another program.
const lead = "onerun:"

// channel returns the channel on which the releases of a key are published. It has the name of
// the lease's key, or WithPlainKeys "onerun:released:" and that name in braces. plain.lua does the
// same.
func (l *Locker) channel(key string) string {
	if l.name == nil {
		lease, _ := redisstore.LeaseKeys(key)
		return lease
	}
	name := l.name(key)
	if !strings.Contains(name, "{") {
		name = "{" + name + "}"
	}
	return "onerun:released:" + name
}

// checkKey is driver.CheckKey. With WithPlainKeys, a key and its
// name may have braces that enclose a hash tag, such as "{tenant}:report". The lease and the
// channel of its release are then in one slot of a Redis Cluster.
func (l *Locker) checkKey(key string) error {
	if l.name == nil {
		return driver.CheckKey(key)
	}
	if err := driver.CheckKeyBytes(key); err != nil {
		return err
	}
	name := l.name(key)
	bad := func(reason string) error {
		return &driver.KeyError{Key: key, Reason: "has the name " + strconv.Quote(name) + " (WithPlainKeys), which " + reason}
	}
	switch {
	case name == "":
		return bad("is empty")
	case redisstore.Own(name):
		return bad(`begins with "onerun:{", as the names of Onerun's own keys do`)
	case redisstore.HashTag(l.channel(key)) != redisstore.HashTag(name):
		return bad("has a brace that does not enclose a hash tag: the lease and the channel of its release would be in two slots of a Redis Cluster")
	}
	return nil
}

// plainScan finds the keys of leases that begin with the prefix by the names of these leases.
func (l *Locker) plainScan(prefix string) (redisstore.Scan, error) {
	const probe = "\x00" // no key has a NUL
	before, after, ok := strings.Cut(l.name(probe), probe)
	if !ok || l.name(prefix+probe) != before+prefix+probe+after {
		return redisstore.Scan{}, &driver.SettingError{
			Setting: "WithPlainKeys", Reason: "keys cannot be listed, because their names do not contain them",
		}
	}
	return redisstore.Scan{
		Prefix:  prefix,
		Pattern: redisstore.Literal(before+prefix) + "*" + redisstore.Literal(after),
		Type:    "string",
		Key: func(name string) (key string, ok bool) {
			if redisstore.Own(name) || len(name) < len(before)+len(after) {
				return "", false
			}
			key = name[len(before) : len(name)-len(after)]
			return key, l.name(key) == name
		},
	}, nil
}

// checkSharing returns an error that says why claims cannot share a key, or nil.
func (l *Locker) checkSharing() error {
	if l.name == nil {
		return nil
	}
	return &driver.SettingError{
		Setting: "WithPlainKeys", Reason: "WithLimit and WithShared do not work with WithPlainKeys",
	}
}
