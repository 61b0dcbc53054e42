package single

import (
	_ "embed"
	"fmt"

	"github.com/seed-1795987d/onerun/backend/internal/redisstore"
	"github.com/seed-1795987d/onerun/guard/driver"
)

var _ driver.Sharer = (*Locker)(nil)

var (
	//go:embed shared.lua
	sharedSource string
	//go:embed shared_acquire.lua
	sharedAcquireSource string
	//go:embed shared_renew.lua
	sharedRenewSource string
	//go:embed shared_release.lua
	sharedReleaseSource string
)

// newSharedProgram returns the program of claims that share a key. It also handles a claim that
// holds a key alone, or is to.
func newSharedProgram(d dialect) *redisstore.Program {
	operation := redisstore.Operation{Keys: 2, Shared: 2, FurtherKeys: 3, Fences: true}
	acquire, renew, release := operation, operation, operation
	acquire.Source, acquire.Args = d.publishing()+acquireSource+sharedAcquireSource, 2
	acquire.FurtherArgs, acquire.Admits = 2, "among > 1"
	renew.Source, renew.Args = sharedRenewSource, 2
	release.Source, release.Args = d.publishing()+releaseSource+sharedReleaseSource, 1
	release.Fences, release.Record = false, true
	return redisstore.NewProgram(redisstore.Sources{
		Common:  sharedCommon(d),
		Acquire: acquire, Renew: renew, Release: release,
	})
}

// sharedCommon returns what scripts for shared keys have in common.
func sharedCommon(d dialect) string {
	return d.common() + fmt.Sprintf("local ANY, MAX_SEATS = %d, %d\n", driver.Any, driver.MaxSeats) + sharedSource +
		redisstore.WantedSource
}

// CheckAmong implements driver.Sharer. It returns nil, because any number of claims can hold a key,
// unless WithPlainKeys is set.
func (l *Locker) CheckAmong(int) error { return l.checkSharing() }

// shared returns a call of the shared program, by a script of it, for a call of the plain one.
func (l *Locker) shared(call redisstore.Call, script *redisstore.Script, args ...any) redisstore.Call {
	call.Script = script
	call.FurtherKeys = append(redisstore.SharingKeys(call.Slot, call.Keys[0]), call.FurtherKeys...)
	call.FurtherArgs = append(args, call.FurtherArgs...)
	return call
}

// sharedAcquire returns the call of the shared program that acquires the key for one of several
// claims.
func (l *Locker) sharedAcquire(call redisstore.Call, among int) redisstore.Call {
	wantedFor := int64(0)
	if call.Waits {
		wantedFor = redisstore.Milliseconds(driver.WantedFor(call.TTL))
	}
	return l.shared(call, l.sharing.Acquire, max(among, 1), wantedFor)
}

// acquireShared returns the call to make for a claim that wants the key alone, after a call of the
// plain program has found that others share the key.
func (l *Locker) acquireShared(call redisstore.Call) redisstore.Call {
	queued := call.Script == l.program.Acquire.Queued()
	if call.Waits || queued {
		l.revisits.Add(call.Args[0], call.TTL)
	}
	call = l.sharedAcquire(call, 1)
	if queued {
		call.Script = call.Script.Queued()
	}
	return call
}

// usesShared reports whether the claim is acquired and released by the shared program.
func (l *Locker) usesShared(c driver.Claim) bool {
	return l.name == nil && (c.Among > 1 || l.revisits.Has(c.ID))
}
