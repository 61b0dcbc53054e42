package etcd

import (
	"context"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/seed-1795987d/onerun/backend/internal/holders"
)

// fixedIn are the first versions without known faults of leases: a leader that had lost its place
// ended leases (etcd-io/etcd#15247), and a lease that had ended was renewed (#20590).
var fixedIn = map[[2]int]int{{3, 5}: 23, {3, 6}: 5}

// statusLimit is how long a server may take to state its version. The client waits for one that is
// down.
const statusLimit = time.Second

// Warnings implements driver.Warner.
func (l *Locker) Warnings(ctx context.Context) (warnings []error) {
	if l.wrong != nil {
		return nil
	}
	for _, endpoint := range l.client.Endpoints() {
		if version := l.version(ctx, endpoint); isFaulty(version) {
			warnings = append(warnings, fmt.Errorf("etcd: the server %s has version %s, whose leases have known faults: use 3.5.23, 3.6.5 or a later one", endpoint, version))
		}
	}
	warnings = append(warnings, l.clockWarnings(ctx)...)
	if from, to := l.history.wentBack(); from != to {
		warnings = append(warnings, fmt.Errorf("etcd: the revision went back from %d to %d: the servers have lost data, or those of a snapshot were restored without --bump-revision, so newer leases are lost", from, to))
	}
	if alarms, err := l.client.AlarmList(ctx); err == nil {
		for _, a := range alarms.Alarms {
			if a.Alarm == pb.AlarmType_NOSPACE {
				warnings = append(warnings, fmt.Errorf("etcd: the database of the server %x is full, so nothing is granted: compact, defragment and disarm the alarm", a.MemberID))
			}
		}
	}
	return warnings
}

// maxAhead is how far fences may be ahead of the clock of a process. They are by 17 hours after
// etcdutl has bumped the revision by the billion that etcd recommends.
const maxAhead = 24 * time.Hour

// clockWarnings warns if fences are ahead of the clock of this process: it is behind, or another
// one was ahead.
func (l *Locker) clockWarnings(ctx context.Context) []error {
	v, err := l.read(ctx, l.directory(""))
	if err != nil {
		return nil
	}
	fence, now := v.clock.at(v.revision), holders.Clock(time.Now())
	if fence <= now+uint64(maxAhead/time.Second)*fenceSecond {
		return nil
	}
	ahead := time.Duration((fence-now)/fenceSecond) * time.Second //nolint:gosec // 44 bits
	return []error{fmt.Errorf("etcd: fences are %v ahead of the clock of this process, so a clock is wrong, or was: should the servers lose their data, fences would go back", ahead)}
}

// version returns the version of a server, or "".
func (l *Locker) version(ctx context.Context, endpoint string) string {
	ctx, cancel := context.WithTimeout(ctx, statusLimit)
	defer cancel()
	status, err := l.client.Status(ctx, endpoint)
	if err != nil {
		return ""
	}
	return status.Version
}

// isFaulty reports whether a version of a server has known faults of leases.
func isFaulty(version string) bool {
	var major, minor, patch int
	if n, _ := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch); n != 3 {
		return false
	}
	fixed, known := fixedIn[[2]int{major, minor}]
	return known && patch < fixed || major < 3 || major == 3 && minor < 5
}
