package etcd

import (
	"context"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
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
	if alarms, err := l.client.AlarmList(ctx); err == nil {
		for _, a := range alarms.Alarms {
			if a.Alarm == pb.AlarmType_NOSPACE {
				warnings = append(warnings, fmt.Errorf("etcd: the database of the server %x is full, so nothing is granted: compact, defragment and disarm the alarm", a.MemberID))
			}
		}
	}
	return warnings
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
