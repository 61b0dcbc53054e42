package etcd

import (
	"context"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// fixedIn are the first versions without known faults of leases: a leader that had lost its place
// ended leases (etcd-io/etcd#15247), and a lease that had ended was renewed (#20590).
var fixedIn = map[[2]int]int{{3, 5}: 23, {3, 6}: 5}

// Warnings implements driver.Warner.
func (l *Locker) Warnings(ctx context.Context) (warnings []error) {
	if l.wrong != nil {
		return nil
	}
	for _, endpoint := range l.client.Endpoints() {
		status, err := l.client.Status(ctx, endpoint)
		if err == nil && isFaulty(status.Version) {
			warnings = append(warnings, fmt.Errorf("etcd: the server %s has version %s, whose leases have known faults: use 3.5.23, 3.6.5 or a later one", endpoint, status.Version))
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

// isFaulty reports whether a version of a server has known faults of leases.
func isFaulty(version string) bool {
	var major, minor, patch int
	if n, _ := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch); n != 3 {
		return false
	}
	fixed, known := fixedIn[[2]int{major, minor}]
	return known && patch < fixed || major < 3 || major == 3 && minor < 5
}
