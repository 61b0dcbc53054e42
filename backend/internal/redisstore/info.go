package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/backend/internal/rediserr"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// serverID returns the server's run ID, from INFO: a random number that it draws when it starts.
// It is "" if the server does not state it, or is a Cluster.
func (s *Store) serverID(ctx context.Context) (string, error) {
	if _, ok := s.client.(*redis.ClusterClient); ok {
		return "", nil
	}
	cmd := redis.NewStringCmd(ctx, "info", "server")
	err := bounded(ctx, func() error { return s.client.Process(ctx, cmd) })
	var refused redis.Error
	kind := rediserr.KindOf(err)
	switch {
	case errors.As(err, &refused) && kind != driver.KindLoading && kind != driver.KindLimit:
		return "", nil
	case err != nil:
		return "", s.error(&Call{Op: driver.OpAcquire}, err)
	}
	return infoField(cmd.Val(), "run_id"), nil
}

// warnings is driver.Warner's Warnings. It asks the server, or a node of a Cluster, for its memory
// settings by INFO: a server that evicts keys can evict leases, which all have a TTL. It also
// warns of a pool that has no connection for renewals alone, and of what makes each claim a script
// of its own.
func (s *Store) warnings(ctx context.Context) []error {
	return slices.Concat(s.poolWarnings(), s.memoryWarnings(ctx), s.scriptWarnings(ctx))
}

func (s *Store) poolWarnings() []error {
	app, ok := s.client.(*redis.Client)
	if !ok || !onlyByPool(app) || poolSize(app) > 1 {
		return nil
	}
	return []error{fmt.Errorf("%s: renewals wait for the application's commands, and leases can be lost: "+
		"the client's pool has one connection, and the client allows the Locker none of its own; "+
		"use a PoolSize of at least 2", s.backend)}
}

func (s *Store) memoryWarnings(ctx context.Context) []error {
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

// scriptWarnings says why each claim is a script of its own, if it is. It makes the probe if that
// is not known.
func (s *Store) scriptWarnings(ctx context.Context) []error {
	if s.router != nil {
		return nil // its client routes by itself
	}
	err := bounded(ctx, func() error {
		s.server.probe.mu.Lock()
		defer s.server.probe.mu.Unlock()
		return s.server.proveNow(ctx)
	})
	mode, name := keyMode(s.server.mode.Load()), serverName(s.addr)
	var refused redis.Error
	switch {
	case mode&literalKeys != 0:
		return []error{fmt.Errorf("%s: %s parses scripts, so each claim is a script of its own, in more commands; "+
			"if you can, set its parameter script_check_enable to 0", s.backend, name)}
	case mode&firstKey != 0:
		return []error{fmt.Errorf("%s: %s is a proxy that sends a script to the server of its first key; "+
			"so each claim is a script of its own, as with WithoutBatching", s.backend, name)}
	case mode&unproven != 0 && errors.As(err, &refused):
		return []error{fmt.Errorf("%s: each claim is a script of its own, because %s has not shown "+
			"to which server it sends a script for several keys: %w", s.backend, name, err)}
	}
	return nil
}

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

// MinUptime makes scripts refuse to grant unless the server has been up for longer than the
// longest TTL. It is option WithMinUptime of the backends.
func (s *Store) MinUptime(longest time.Duration) {
	if longest < driver.MinTTL {
		s.Refuse("WithMinUptime", longest.String(), fmt.Sprintf("must be the longest TTL of all leases, which is %v at least", driver.MinTTL))
		return
	}
	s.minUptime = longest
}

// uptimeSeconds returns the seconds for which a server must have been up before it grants.
func (s *Store) uptimeSeconds() int64 { return int64((s.minUptime + time.Second - 1) / time.Second) }

// checkTTL returns an error if a claim's TTL is longer than that of MinUptime.
func (s *Store) checkTTL(ttl time.Duration) error {
	if s.minUptime == 0 || ttl <= s.minUptime {
		return nil
	}
	return fmt.Errorf("WithMinUptime(%v) is shorter than the lease's TTL of %v: %w", s.minUptime, ttl, errLongTTL)
}

var errLongTTL = errors.New("a server that restarted could forget it unnoticed")
