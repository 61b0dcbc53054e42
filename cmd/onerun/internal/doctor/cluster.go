package doctor

import (
	"context"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// examineCluster examines the masters of a Cluster.
func examineCluster(ctx context.Context, client *redis.ClusterClient, c Config) []*Server {
	var mu sync.Mutex
	var all []*Server
	whole := &Server{Addr: "Cluster of " + strings.Join(client.Options().Addrs, ", ")}
	err := client.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		s := &Server{Addr: node.Options().Addr, member: true}
		if s.reach(ctx, node) {
			s.look(ctx, node)
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, s)
		return nil
	})
	if err != nil {
		whole.add("reach", Problem, "%s", whyUnreachable(err))
		return []*Server{whole}
	}
	whole.facts = facts{"cluster": "1"}
	whole.checkCluster(ctx, client, len(all))
	whole.try(ctx, client, c)
	return append([]*Server{whole}, all...)
}

// checkCluster checks that all slots are served.
func (s *Server) checkCluster(ctx context.Context, client *redis.ClusterClient, masters int) {
	text, err := client.ClusterInfo(ctx).Result()
	if err != nil {
		s.add("cluster", Unknown, "%d masters; the user has no right to CLUSTER INFO", masters)
		return
	}
	f := facts{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		f[name] = value
	}
	if f.text("cluster_state") != "ok" || f.number("cluster_slots_ok") < 16384 {
		s.add("cluster", Problem, "state %s, %d of 16384 slots are served: keys of the others are refused",
			f.text("cluster_state"), f.number("cluster_slots_ok"))
		return
	}
	s.add("cluster", OK, "%d masters serve all slots", masters)
}
