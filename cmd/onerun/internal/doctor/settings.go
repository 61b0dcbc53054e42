package doctor

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// checkVersion checks for Redis 6.2, the oldest that the backends support.
func (s *Server) checkVersion() {
	f := s.facts
	version := f.text("redis_version")
	name := "Redis " + version
	for field, server := range map[string]string{"valkey_version": "Valkey", "dragonfly_version": "Dragonfly"} {
		if f.text(field) != "" {
			name = fmt.Sprintf("%s %s, compatible with Redis %s", server, f.text(field), version)
		}
	}
	major, minor := parseVersion(version)
	switch {
	case version == "":
		s.add("version", Unknown, "the user has no right to INFO")
	case major < 6 || major == 6 && minor < 2:
		s.add("version", Problem, "%s: the backends need 6.2", name)
	default:
		s.add("version", OK, "%s", name)
	}
}

func parseVersion(version string) (major, minor int) {
	parts := strings.SplitN(version, ".", 3)
	major, _ = strconv.Atoi(parts[0])
	if len(parts) > 1 {
		minor, _ = strconv.Atoi(parts[1])
	}
	return major, minor
}

// checkRole checks that the server takes writes.
func (s *Server) checkRole() {
	switch role := s.facts.text("role"); {
	case role == "":
		s.add("role", Unknown, "the user has no right to INFO")
	case role == "master" && s.facts.text("cluster_enabled") == "1" && !s.member:
		s.add("role", Problem, "a node of a Cluster: name it with redis+cluster://")
	case role == "master":
		s.add("role", OK, "master")
	default:
		s.add("role", Problem, "replica of %s:%s: it takes no writes, so it grants no lease",
			s.facts.text("master_host"), s.facts.text("master_port"))
	}
}

// evicts reports whether the server evicts leases when its memory is full.
func (f facts) evicts() bool {
	policy := f.text("maxmemory_policy")
	return policy != "" && policy != "noeviction" && f.text("maxmemory") != "0"
}

// checkMemory checks that the server does not evict leases. They have a TTL, so all policies but
// noeviction apply to them.
func (s *Server) checkMemory() {
	policy := s.facts.text("maxmemory_policy")
	switch {
	case policy == "":
		s.add("maxmemory", Unknown, "the user has no right to INFO")
	case s.facts.evicts():
		s.add("maxmemory", Problem, "policy %s evicts leases and done markers when %s are full: use noeviction, "+
			"or a server for leases alone", policy, s.facts.text("maxmemory_human"))
	case policy != "noeviction":
		s.add("maxmemory", Note, "no limit, so policy %s evicts nothing; use noeviction before you set a limit", policy)
	case s.facts.text("maxmemory") == "0":
		s.add("maxmemory", OK, "no limit, policy noeviction")
	default:
		s.add("maxmemory", OK, "%s of %s used, policy noeviction: a full server grants nothing new, and renews and releases",
			s.facts.text("used_memory_human"), s.facts.text("maxmemory_human"))
	}
}

// keeps says what the server remembers after a restart.
type keeps string

const (
	keepsNothing  keeps = "nothing"
	keepsSnapshot keeps = "snapshots"
	keepsSecond   keeps = "all but the last second"
	keepsAll      keeps = "all"
)

// checkPersistence checks what the server remembers after a restart.
func (s *Server) checkPersistence(ctx context.Context, client *redis.Client) {
	if s.facts.text("aof_enabled") == "" {
		s.add("persistence", Unknown, "the user has no right to INFO")
		return
	}
	if s.facts.text("loading") == "1" {
		s.add("persistence", Problem, "is reading its data from disk, and answers nothing else")
	}
	snapshots, known := s.snapshots(ctx, client)
	switch {
	case s.facts.text("aof_enabled") == "1":
		fsync := config(ctx, client, "appendfsync")
		if fsync == "always" {
			s.facts["keeps"] = string(keepsAll)
			s.add("persistence", OK, "AOF, fsync always: a restart forgets nothing")
			return
		}
		s.facts["keeps"] = string(keepsSecond)
		if fsync == "" {
			fsync = "unknown, everysec by default"
		}
		s.add("persistence", Note, "AOF, fsync %s: a crash of the host can forget the newest leases and markers", fsync)
	case !known:
		s.add("persistence", Unknown, "no AOF; the user has no right to CONFIG GET, which tells whether there are snapshots")
	case snapshots:
		s.facts["keeps"] = string(keepsSnapshot)
		last := time.Since(time.Unix(int64(s.facts.number("rdb_last_save_time")), 0)).Round(time.Second)
		s.add("persistence", Note, "snapshots, the last %v ago: a restart forgets the leases and markers that came later", last)
	default:
		s.facts["keeps"] = string(keepsNothing)
		s.add("persistence", Note, "none: a restart forgets all leases and done markers")
	}
	if s.facts.text("rdb_last_bgsave_status") == "err" || s.facts.text("aof_last_write_status") == "err" {
		s.add("disk", Problem, "the last write to the disk has failed: the server may refuse writes")
	}
}

// snapshots reports whether the server takes snapshots, if that can be known.
func (s *Server) snapshots(ctx context.Context, client *redis.Client) (takes, known bool) {
	values, err := client.ConfigGet(ctx, "save").Result()
	if err != nil {
		return false, false
	}
	return values["save"] != "", true
}

// checkReplicas reports the replicas of a master.
func (s *Server) checkReplicas(ctx context.Context, client *redis.Client) {
	f := s.facts
	if f == nil || f.text("role") != "master" {
		return
	}
	n := f.number("connected_slaves")
	if n == 0 {
		s.add("replicas", OK, "none")
		return
	}
	worst, offline := 0, 0
	for i := range n {
		replica := map[string]string{}
		for field := range strings.SplitSeq(f.text("slave"+strconv.Itoa(i)), ",") {
			name, value, _ := strings.Cut(field, "=")
			replica[name] = value
		}
		lag, _ := strconv.Atoi(replica["lag"])
		worst = max(worst, lag)
		if replica["state"] != "online" {
			offline++
		}
	}
	text := fmt.Sprintf("%d, the slowest heard from %d s ago", n, worst)
	if offline > 0 {
		text += fmt.Sprintf(", %d not in sync", offline)
	}
	if least := config(ctx, client, "min-replicas-to-write"); least != "" {
		text += ", min-replicas-to-write " + least
	}
	s.add("replicas", Note, "%s: a failover can forget the newest leases and markers, see WithReplicas", text)
}

// checkClock compares the server's clock with that of this host.
func (s *Server) checkClock(ctx context.Context, client *redis.Client) {
	var best, off time.Duration
	for range 5 {
		start := time.Now()
		there, err := client.Time(ctx).Result()
		if err != nil {
			s.add("clock", Unknown, "the user has no right to TIME (%v)", err)
			return
		}
		if trip := time.Since(start); best == 0 || trip < best {
			best, off = trip, there.Sub(start.Add(trip/2))
		}
	}
	text := fmt.Sprintf("%v from this host's, ±%v", off.Round(time.Microsecond), (best / 2).Round(time.Microsecond))
	if off.Abs() > time.Second+best/2 {
		s.add("clock", Note, "%s: leases do not depend on it, but records of cron jobs are hard to compare", text)
		return
	}
	s.add("clock", OK, "%s", text)
}
