package redisstore

import (
	"context"
	"errors"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// RenewBatch implements driver.BatchRenewer with one script call for each claim.
func (s *Store) RenewBatch(
	ctx context.Context, claims []driver.Claim, call func(driver.Claim) Call, report func(i int, held bool, err error),
) {
	calls := make([]Call, len(claims))
	for i, c := range claims {
		calls[i] = call(c)
	}
	s.IntBatch(ctx, calls, func(i int, answer int64, err error) { report(i, answer == 1, err) })
}

// IntBatch runs scripts that answer integers, in one pipeline for each node, and calls report once
// for each call with its place in calls, as soon as its node has answered. It returns when all
// have been reported, soon after ctx has ended at the latest.
func (s *Store) IntBatch(ctx context.Context, calls []Call, report func(i int, answer int64, err error)) {
	groups, err := s.byNode(ctx, calls)
	if err != nil {
		for i, c := range calls {
			report(i, 0, s.error(&c, err))
		}
		return
	}
	var all sync.WaitGroup
	for _, g := range groups {
		all.Go(func() { s.intGroup(ctx, g, report) })
	}
	all.Wait()
}

// A group is what goes to one server.
type group struct {
	lane  *lane
	calls []Call
	at    []int // where the calls are in the batch
}

// intGroup runs the calls of one group in one pipeline: on a connection of our own where that can
// be, as the application may have taken all of its client's.
func (s *Store) intGroup(ctx context.Context, g *group, report func(int, int64, error)) {
	var err error
	cmds := g.bySeat(ctx)
	if cmds == nil {
		// A call that is left behind has nowhere else to write to.
		sent := make(chan []*redis.IntCmd, 1)
		err = bounded(ctx, func() error {
			s.byPool(ctx, g, sent)
			return nil
		})
		if err == nil {
			cmds = <-sent
		}
	}
	for n, i := range g.at {
		if err != nil {
			report(i, 0, s.error(&g.calls[n], err))
			continue
		}
		answer, err := cmds[n].Result()
		if s.nodes != nil && errors.Is(err, redis.ErrClosed) {
			err = errNodeLeft
		}
		answer, err = s.toInt(&g.calls[n], answer, err)
		report(i, answer, err)
	}
}

// byPool runs the calls on a connection of the user's client.
func (s *Store) byPool(ctx context.Context, g *group, sent chan<- []*redis.IntCmd) {
	switch {
	case g.lane.pooled != nil:
		g.lane.pooled.use(func(client pipeliner) error {
			cmds := g.send(ctx, client)
			sent <- cmds
			return worstOf(cmds)
		})
	case s.nodes != nil:
		sent <- g.send(ctx, s.client) // which follows redirections
	default:
		sent <- g.send(ctx, g.lane.client)
	}
}

// bySeat runs the calls on a connection of our own, and returns nil if there is none.
func (g *group) bySeat(ctx context.Context) []*redis.IntCmd {
	seat := g.lane.renewals
	if seat == nil || !seat.wait(ctx, lateAfter) {
		return nil
	}
	cmds := g.send(ctx, seat.client)
	seat.leave(worstOf(cmds))
	return cmds
}

func worstOf(cmds []*redis.IntCmd) error {
	for _, cmd := range cmds {
		if spoilt(cmd.Err()) {
			return cmd.Err()
		}
	}
	return nil
}

// send runs the calls, and once more, by their source, those whose script the server does not
// know. Each command has its own error.
func (g *group) send(ctx context.Context, client pipeliner) []*redis.IntCmd {
	cmds := make([]*redis.IntCmd, len(g.calls))
	var unknown []int
	ask := func(at []int, command func(*Call) []any) {
		pipe := client.Pipeline()
		for _, n := range at {
			cmds[n] = redis.NewIntCmd(ctx, command(&g.calls[n])...)
			_ = pipe.Process(ctx, &noRetry{cmds[n]})
		}
		_, _ = pipe.Exec(ctx)
	}
	every := make([]int, len(cmds))
	for n := range every {
		every[n] = n
	}
	ask(every, (*Call).evalsha)
	for n, cmd := range cmds {
		if isNoScript(cmd.Err()) {
			unknown = append(unknown, n)
		}
	}
	if len(unknown) > 0 {
		ask(unknown, (*Call).eval)
	}
	return cmds
}

// byNode groups the calls by the node that has their key, so that a node that is slow to answer
// does not hold up the answers of another.
func (s *Store) byNode(ctx context.Context, calls []Call) (groups []*group, err error) {
	if s.nodes == nil {
		all := &group{lane: s.lane, calls: calls, at: make([]int, len(calls))}
		for i := range all.at {
			all.at[i] = i
		}
		return []*group{all}, nil
	}
	answer := make(chan []*group, 1) // what is left behind has nowhere else to write to
	err = bounded(ctx, func() error {
		of := map[*lane]*group{}
		var found []*group
		for i := range calls {
			lane, err := s.nodes.find(ctx, calls[i].key)
			if err != nil {
				return err
			}
			g := of[lane]
			if g == nil {
				g = &group{lane: lane}
				of[lane] = g
				found = append(found, g)
			}
			g.calls, g.at = append(g.calls, calls[i]), append(g.at, i)
		}
		answer <- found
		return nil
	})
	if err != nil {
		return nil, err
	}
	return <-answer, nil
}
