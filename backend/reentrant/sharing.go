package reentrant

import (
	_ "embed"
	"fmt"

	"github.com/seed-1795987d/onerun/backend/internal/redisstore"
	"github.com/seed-1795987d/onerun/guard/driver"
)

var (
	//go:embed claim.lua
	claimSource string
	//go:embed next.lua
	nextSource string
	//go:embed shared.lua
	sharedSource string
	//go:embed shared_acquire.lua
	sharedAcquireSource string
	//go:embed shared_release.lua
	sharedReleaseSource string

	//go:embed rlock.lua
	rlockSource string

	constants           = fmt.Sprintf("local ANY, MAX_SEATS = %d, %d\n", driver.Unlimited, driver.MaxSeats)
	wantedSource        = "local wanted = KEYS[3]\n" + redisstore.WantedSource
	acquireSharedSource = wantedSource + claimSource + sharedAcquireSource
	releaseSharedSource = wantedSource + releaseSource + sharedReleaseSource

	// sharedScripts are those of claims that may share a key, or that the store may know. They also
	// serve a claim of a key that is free or held alone.
	sharedScripts = redisstore.NewScripts(redisstore.Sources{
		Common: redisstore.TimesSource + holdsSource + surveySource + rlockSource + constants + sharedSource,
		Acquire: redisstore.Operation{
			Source: acquireSharedSource,
			Keys:   2, FurtherKeys: 2, Args: 3, Shared: 3, FurtherArgs: 2, Fences: true,
			Publishes: true, Admits: "max_holders > 1",
		},
		Renew: redisstore.Operation{Source: renewSource, Keys: 2, Args: 2, Shared: 2, Fences: true},
		Release: redisstore.Operation{
			Source: "local FREE = '0'\n" + releaseSharedSource,
			Keys:   2, FurtherKeys: 1, Args: 1, Shared: 3, Record: true, Publishes: true, Free: nextSource,
		},
	})
)

// checkSharing returns an error that says why n claims cannot share a key, or nil.
func (l *Locker) checkSharing(n int) error {
	if !l.readWrite || n == driver.Unlimited {
		return nil
	}
	return &driver.SettingError{
		Setting: "WithLimit", Value: fmt.Sprint(n),
		Reason: "a read-write lock of Redisson's has any number of readers: " +
			"backend/reentrant cannot limit them with its option WithReadWrite",
	}
}
