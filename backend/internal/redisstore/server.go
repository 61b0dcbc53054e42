package redisstore

import (
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// A server sends requests to an endpoint. Renewals wait neither behind other requests nor for the
// lanes of these. acked sends what replicas have to acknowledge.
type server struct {
	*endpoint
	calls, acked, renewals *batcher
}

func newServer(client redis.UniversalClient) *server {
	to := newEndpoint(client)
	s := &server{endpoint: to, calls: newBatcher(to), acked: newBatcher(to), renewals: newRenewer(to)}
	if to.slow == nil {
		return s
	}
	switch app := to.client.(*redis.Client); {
	case !onlyByPool(app):
		for range normalWorkers {
			s.calls.lanes = append(s.calls.lanes, newLane(app, shortIdle))
		}
		s.renewals.lanes = []*lane{newLane(app, renewalIdle)}
	case poolSize(app) > 1:
		s.renewals.lanes = []*lane{newPoolLane(app, to.slow.unlimited)}
	}
	return s
}

func (s *server) lanes() []*lane { return slices.Concat(s.calls.lanes, s.renewals.lanes) }

func (s *server) close() {
	for _, l := range s.lanes() {
		l.close()
	}
}

// setUp has own clients set up before they are used.
func (s *server) setUp(setups []func(*redis.Client)) {
	for _, l := range s.lanes() {
		if l.own != nil {
			l.own.setups = setups
		}
	}
}

// add sends requests of one kind, together if that is possible. Each is finished once: soon after
// its context has ended if the server answers other requests, and at the latest if the client gives
// up.
func (s *server) add(requests ...*request) {
	switch call := &requests[0].call; {
	case call.Op == driver.OpRenew:
		s.renewals.add(requests...)
	case call.Acks.Replicas > 0:
		s.acked.add(requests...)
	default:
		s.calls.add(requests...)
	}
}

// addDirect sends a request from the caller's own goroutine if nothing else is under way, and
// returns false otherwise.
func (s *server) addDirect(r *request) bool {
	return r.call.Acks.Replicas == 0 && s.calls.sendDirect(r)
}

func (s *server) unused(d time.Duration) bool {
	return s.calls.unused(d) && s.renewals.unused(d) && s.acked.unused(d)
}
