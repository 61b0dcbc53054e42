package redisstore

import (
	"context"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// Addr returns the server's address, or "" if the client finds its server through Sentinel. A
// Cluster has the addresses that its client was given.
func (s *Store) Addr() string {
	if s.addr == behindSentinel {
		return ""
	}
	return s.addr
}

// ServerID returns the server's run ID, from INFO: a random number that it draws when it starts.
// It is "" if the server does not tell, or is a Cluster.
func (s *Store) ServerID(ctx context.Context) (string, error) {
	if _, ok := s.client.(*redis.ClusterClient); ok {
		return "", nil
	}
	cmd := redis.NewStringCmd(ctx, "info", "server")
	err := bounded(ctx, func() error { return s.client.Process(ctx, cmd) })
	var refused redis.Error
	switch {
	case errors.As(err, &refused) && !unfit(kindOf(err)):
		return "", nil
	case err != nil:
		return "", &driver.StoreError{Backend: s.backend, Op: driver.OpAcquire, Addr: s.addr, Kind: kindOf(err), Err: err}
	}
	_, after, _ := strings.Cut(cmd.Val(), "run_id:")
	id, _, _ := strings.Cut(after, "\r\n")
	return id, nil
}

// unfit reports whether a server that has answered with an error of that kind cannot be used at
// all.
func unfit(kind driver.StoreErrorKind) bool {
	switch kind {
	case driver.KindLoading, driver.KindLimit:
		return true
	default:
		return false
	}
}
