package redlock_test

// shows says by which metric an operator sees each fault. Faults without one change nothing for
// callers.
var shows = map[string]string{
	"TestFault7_repliesLostOnAcquire":             `^onerun.node.operation.duration\{error.type=connection.*onerun.operation=acquire`,
	"TestFault7_repliesLostOnRenew":               `^onerun.node.operation.duration\{error.type=connection.*onerun.operation=renew`,
	"TestFault7_repliesLostOnRelease":             `^onerun.node.operation.duration\{error.type=connection.*onerun.operation=release`,
	"TestLong_fault22_nodesDownFrozenOrSlow":      `^onerun.node.operation.duration\{error.type=`,
	"TestFault23_aMinorityRestartsEmptyWhileHeld": `^onerun.node.operation.duration\{error.type=lost_not_held.*onerun.operation=renew`,
	"TestFault23_aMajorityRestartsEmptyWhileHeld": `^onerun.lease.losses\{onerun.loss.reason=not_held`,
}
