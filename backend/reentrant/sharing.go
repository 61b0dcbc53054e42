package reentrant

import (
	_ "embed"
	"fmt"

	"github.com/seed-1795987d/onerun/backend/internal/redisstore"
	"github.com/seed-1795987d/onerun/guard/driver"
)

var _ driver.Sharer = (*Locker)(nil)

var (
	//go:embed answers.lua
	answersSource string
	//go:embed next.lua
	nextSource string
	//go:embed shared.lua
	sharedSource string
	//go:embed shared_acquire.lua
	sharedAcquireSource string
	//go:embed shared_renew.lua
	sharedRenewSource string
	//go:embed shared_release.lua
	sharedReleaseSource string

	//go:embed rlock.lua
	rlockSource string

	constants           = fmt.Sprintf("local ANY, MAX_SEATS = %d, %d\n", driver.Any, driver.MaxSeats)
	wantedSource        = "local wanted = KEYS[3]\n" + redisstore.WantedSource
	acquireSharedSource = wantedSource + answersSource + publishSource + sharedAcquireSource
	releaseSharedSource = wantedSource + publishSource + releaseSource + sharedReleaseSource

	// sharing is the program of claims that share a key. It also handles a claim that holds a key
	// alone, or is to.
	sharing = redisstore.NewProgram(redisstore.Sources{
		Common: holdsSource + surveySource + rlockSource + constants + sharedSource,
		Acquire: redisstore.Operation{
			Source: acquireSharedSource,
			Keys:   2, FurtherKeys: 2, Args: 3, Shared: 2, FurtherArgs: 3, Fences: true,
			Admits: "among > 1",
		},
		Renew: redisstore.Operation{
			Source: sharedRenewSource, Keys: 2, Args: 2, Shared: 2, Fences: true,
		},
		Release: redisstore.Operation{
			Source: "local FREE = '0'\n" + releaseSharedSource,
			Keys:   2, FurtherKeys: 1, Args: 1, Shared: 3, Record: true, Free: nextSource,
		},
	})
)

// CheckAmong implements driver.Sharer: any number of claims can share a key. With WithReadWrite,
// their number cannot be limited.
func (l *Locker) CheckAmong(n int) error {
	if !l.readWrite || n == driver.Any {
		return nil
	}
	return &driver.SettingError{
		Setting: "WithLimit", Value: fmt.Sprint(n),
		Reason: "a read-write lock of Redisson's has any number of readers: " +
			"backend/reentrant cannot limit them with its option WithReadWrite",
	}
}

// sharedAcquire makes a call of acquire one of the shared program.
func (l *Locker) sharedAcquire(call redisstore.Call, among int) redisstore.Call {
	wantedFor := int64(0)
	if call.Waits {
		wantedFor = redisstore.Milliseconds(driver.WantedFor(call.TTL))
	}
	call.Script = sharing.Acquire
	call.FurtherKeys = append([]string{wantedKey(call), l.channel(call.Key)}, call.FurtherKeys...)
	call.FurtherArgs = append([]any{max(among, 1), wantedFor, l.howToPublish()}, call.FurtherArgs...)
	return call
}

// acquireShared returns the call to make for a claim that wants the key alone, after a call of the
// plain program has found that others share the key.
func (l *Locker) acquireShared(call redisstore.Call) redisstore.Call {
	queued := call.Script == program.Acquire.Queued()
	if call.Waits || queued {
		l.revisits.Add(call.Args[0], call.TTL)
	}
	call = l.sharedAcquire(call, 1)
	if queued {
		call.Script = call.Script.Queued()
	}
	return call
}

// sharedRelease makes a call of release one of the shared program.
func (l *Locker) sharedRelease(call redisstore.Call) redisstore.Call {
	call.Script = sharing.Release
	call.FurtherKeys = append([]string{wantedKey(call)}, call.FurtherKeys...)
	return call
}

// usesShared reports whether the claim is acquired and released by the shared program.
func (l *Locker) usesShared(c driver.Claim) bool { return c.Among > 1 || l.revisits.Has(c.ID) }

// wantedKey returns the key that has the claim for which others are refused.
func wantedKey(call redisstore.Call) string {
	return redisstore.WantedKey(redisstore.FenceKeyBeside(call.Key), call.Key)
}
