package redisstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Warnings implements driver.Warner. It asks the server, or a node of a Cluster, for its memory
// settings by INFO: a server that evicts keys can evict leases, which all have a TTL.
func (s *Store) Warnings(ctx context.Context) []error {
	cmd := redis.NewStringCmd(ctx, "info", "memory")
	if bounded(ctx, func() error { return s.client.Process(ctx, cmd) }) != nil {
		return nil
	}
	policy, limit := infoField(cmd.Val(), "maxmemory_policy"), infoField(cmd.Val(), "maxmemory")
	if policy == "" || policy == "noeviction" || limit == "0" {
		return nil
	}
	return []error{fmt.Errorf("%s: %s evicts leases when its memory is full (maxmemory-policy %s); "+
		"use noeviction, or a server for leases alone", s.backend, serverName(s.addr), policy)}
}

// serverName returns how a warning names the server.
func serverName(addr string) string {
	if addr == "" {
		return "the server"
	}
	return "the server at " + addr
}

// infoField returns a field of what INFO answers, or "".
func infoField(info, name string) string {
	for line := range strings.SplitSeq(info, "\r\n") {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return value
		}
	}
	return ""
}
