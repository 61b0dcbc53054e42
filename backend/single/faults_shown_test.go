package single_test

// shows says by which metric an operator sees each fault. Those without one are nobody's trouble:
// they change nothing for callers.
var shows = map[string]string{
	"TestFault5_frozenServer":                            `^onerun.acquire.unknown\{error.type=timeout`,
	"TestFault6_serverDownAndStaysDown":                  `^onerun.lease.losses\{onerun.loss.reason=expired`,
	"TestFault7_replyLostOnAcquire":                      `^onerun.acquire.unknown\{error.type=connection`,
	"TestFault7_replyLostOnRenew":                        `^onerun.renew.duration\{error.type=connection`,
	"TestFault7_replyLostOnRelease":                      `^onerun.store.operation.duration\{error.type=connection,onerun.operation=release`,
	"TestFault8_slowAcquireCountsFromBeforeTheRequest":   `^onerun.acquire.unknown\{error.type=timeout`,
	"TestFault9_blackHole":                               `^onerun.lease.losses\{onerun.loss.reason=expired`,
	"TestFaults10to12_keyGoneUnderTheHolder":             `^onerun.lease.losses\{onerun.loss.reason=not_held`,
	"TestFault11_fencesGrowAcrossAFlushInTheSameInstant": ``,
	"TestFault13_scriptsFlushed":                         ``,
	"TestFault14_scriptThatBlocksTheServer":              `^onerun.renew.duration\{error.type=script_busy`,
	"TestFault15_outOfMemory":                            `^onerun.acquire.unknown\{error.type=oom`,
	"TestFault16_serverThatRefuses":                      `^onerun.acquire.unknown\{error.type=(connection|limit|readonly|noreplicas)`,
	"TestFault16_serverThatIsLoading":                    `^onerun.acquire.unknown\{error.type=loading`,
	"TestFault19_serverRestartsEmpty":                    `^onerun.lease.losses\{onerun.loss.reason=not_held`,
	"TestFault20_failoverThatForgetsTheLease":            `^onerun.lease.losses\{onerun.loss.reason=not_held`,
	"TestFault21_slotMovesUnderAHeldLease":               ``,
	"TestFault24_applicationEmptiesTheConnectionPool":    ``,
	"TestFault25_clientClosedUnderTheGuard":              `^onerun.renew.duration\{error.type=closed`,
}
