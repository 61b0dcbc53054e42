package redisstore

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/guard"
)

// RenewBatch implements guard.BatchRenewer with one script call for each claim.
func (s *Store) RenewBatch(
	ctx context.Context, claims []guard.Claim, call func(guard.Claim) Call, report func(i int, held bool, err error),
) {
	calls := make([]Call, len(claims))
	for i, c := range claims {
		calls[i] = call(c)
	}
	s.IntBatch(ctx, calls, func(i int, answer int64, err error) { report(i, answer == 1, err) })
}

// IntBatch runs scripts that answer integers, in one pipeline for each node, and calls report once for
// each call with its place in calls, as soon as its node has answered. It returns when all have been
// reported, soon after ctx has ended at the latest.
func (s *Store) IntBatch(ctx context.Context, calls []Call, report func(i int, answer int64, err error)) {
	groups, err := s.byNode(ctx, calls)
	if err != nil {
		for i, c := range calls {
			report(i, 0, s.error(&c, err))
		}
		return
	}
	var all sync.WaitGroup
	for _, group := range groups {
		all.Go(func() { s.intGroup(ctx, calls, group, report) })
	}
	all.Wait()
}

// intGroup runs the calls at the places of one group in one pipeline.
func (s *Store) intGroup(ctx context.Context, calls []Call, group []int, report func(int, int64, error)) {
	var cmds []*redis.IntCmd
	err := bounded(ctx, func() error {
		sent := s.pipeline(ctx, calls, group, (*Call).evalsha)
		s.mend(ctx, calls, group, sent)
		cmds = sent
		return nil
	})
	for n, i := range group {
		if err != nil {
			report(i, 0, s.error(&calls[i], err))
			continue
		}
		answer, err := cmds[n].Result()
		if err != nil {
			err = s.error(&calls[i], err)
		}
		report(i, answer, err)
	}
}

// pipeline sends the calls at the places of group. Each command has its own error.
func (s *Store) pipeline(ctx context.Context, calls []Call, group []int, command func(*Call) []any) []*redis.IntCmd {
	cmds := make([]*redis.IntCmd, len(group))
	pipe := s.client.Pipeline()
	for n, i := range group {
		cmds[n] = redis.NewIntCmd(ctx, command(&calls[i])...)
		_ = pipe.Process(ctx, &noRetry{cmds[n]})
	}
	_, _ = pipe.Exec(ctx)
	return cmds
}

// mend sends those of the calls again, by their source, whose script the server does not know.
func (s *Store) mend(ctx context.Context, calls []Call, group []int, cmds []*redis.IntCmd) {
	var unknown, at []int
	for n, i := range group {
		if isNoScript(cmds[n].Err()) {
			unknown, at = append(unknown, i), append(at, n)
		}
	}
	if len(unknown) == 0 {
		return
	}
	for n, cmd := range s.pipeline(ctx, calls, unknown, (*Call).eval) {
		cmds[at[n]] = cmd
	}
}

// byNode groups the places of calls by the node that has their key, so that a node that is slow to
// answer does not hold up the answers of another.
func (s *Store) byNode(ctx context.Context, calls []Call) (groups [][]int, err error) {
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		all := make([]int, len(calls))
		for i := range all {
			all[i] = i
		}
		return [][]int{all}, nil
	}
	err = bounded(ctx, func() error {
		of := map[*redis.Client]int{}
		var found [][]int
		for i, c := range calls {
			node, err := cluster.MasterForKey(ctx, c.key)
			if err != nil {
				return err
			}
			g, ok := of[node]
			if !ok {
				g = len(found)
				of[node] = g
				found = append(found, nil)
			}
			found[g] = append(found[g], i)
		}
		groups = found
		return nil
	})
	return groups, err
}
