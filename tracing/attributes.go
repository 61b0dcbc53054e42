package tracing

import "go.opentelemetry.io/otel/attribute"

// The attributes. OpenTelemetry has no convention for locks or jobs. error.type is a convention of
// OpenTelemetry.
const (
	keyName       = attribute.Key("onerun.name")
	keyResult     = attribute.Key("onerun.result")
	keyErrorType  = attribute.Key("error.type")
	keyMaxHolders = attribute.Key("onerun.max_holders")
	keyEnd        = attribute.Key("onerun.end")
	keyLossReason = attribute.Key("onerun.loss.reason")
	keySkipReason = attribute.Key("onerun.skip.reason")
	keyOperation  = attribute.Key("onerun.operation")
	keyAdapter    = attribute.Key("onerun.adapter")
	keyNode       = attribute.Key("onerun.node")

	// The following are attributes of spans only.
	keyKey          = attribute.Key("onerun.key")
	keyOwner        = attribute.Key("onerun.owner")
	keyFence        = attribute.Key("onerun.fence")
	keyTTL          = attribute.Key("onerun.ttl")
	keyAttempts     = attribute.Key("onerun.attempts")
	keyWaited       = attribute.Key("onerun.wait_time")
	keyTakeover     = attribute.Key("onerun.takeover")
	keyMissedWakeUp = attribute.Key("onerun.missed_wakeup")
	keyRenewals     = attribute.Key("onerun.renewals")
	keyUtilization  = attribute.Key("onerun.lease.utilization")
	keyHeld         = attribute.Key("onerun.lease.held")
	keyLateness     = attribute.Key("onerun.lateness")
	keyBroken       = attribute.Key("onerun.loss.broken")
	keyHandedOff    = attribute.Key("onerun.handed_off")
	keyJoined       = attribute.Key("onerun.joined")
	keyHolder       = attribute.Key("onerun.holder")
	keyLink         = attribute.Key("onerun.link")
)
