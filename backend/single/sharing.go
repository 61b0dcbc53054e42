package single

import (
	_ "embed"
	"fmt"

	"github.com/seed-1795987d/onerun/backend/internal/redisstore"
	"github.com/seed-1795987d/onerun/guard/driver"
)

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

// shared returns the scripts of claims that may share a key, or that the store may know. They
// also serve a claim of a key that is free or held alone.
func (d dialect) shared() redisstore.Scripts {
	operation := redisstore.Operation{Keys: 2, Shared: 2, FurtherKeys: 3, Fences: true}
	acquire, renew, release := operation, operation, operation
	acquire.Source, acquire.Args = d.publishing()+acquireSource+sharedAcquireSource, 2
	acquire.FurtherArgs, acquire.Admits, acquire.Publishes = 2, "max_holders > 1", true
	renew.Source, renew.Args = sharedRenewSource, 2
	release.Source, release.Args = d.publishing()+releaseSource+sharedReleaseSource, 1
	release.Fences, release.Record, release.Publishes = false, true, true
	return redisstore.NewScripts(redisstore.Sources{
		Common:  sharedCommon(d),
		Acquire: acquire, Renew: renew, Release: release,
	})
}

// sharedCommon returns what scripts for shared keys have in common.
func sharedCommon(d dialect) string {
	return d.common() + fmt.Sprintf("local ANY, MAX_SEATS = %d, %d\n", driver.Unlimited, driver.MaxSeats) +
		redisstore.TimesSource + sharedSource + redisstore.WantedSource
}

// further returns the Redis keys that describe the holders of a key.
func further(_ driver.Op, c driver.Claim, fence string) []string {
	return redisstore.SharingKeys(fence, c.Key)
}
