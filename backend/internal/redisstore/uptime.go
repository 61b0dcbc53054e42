package redisstore

import (
	"fmt"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

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

// checkTTL returns an error if the call's TTL is longer than that of MinUptime.
func (s *Store) checkTTL(c *Call) error {
	if s.minUptime == 0 || c.TTL <= s.minUptime {
		return nil
	}
	return &driver.StoreError{Backend: s.backend, Op: c.Op, Key: c.Key, Addr: s.addr, Kind: driver.KindSettings, Err: fmt.Errorf(
		"WithMinUptime(%v) is shorter than the lease's TTL of %v: a server that restarted could forget it unnoticed", s.minUptime, c.TTL)}
}
