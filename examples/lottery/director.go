package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/seed-1795987d/onerun/examples/internal/stage"
)

const rounds = 3

// clocks are what the replicas' clocks are ahead of the true time, and what they gain with each round. The
// fourth falls behind until it fires when the draw is over.
var clocks = []struct{ ahead, drift time.Duration }{
	{ahead: 70 * time.Millisecond},
	{ahead: 0},
	{ahead: 160 * time.Millisecond},
	{ahead: -70 * time.Millisecond, drift: -140 * time.Millisecond},
	{ahead: 120 * time.Millisecond},
}

// A director has the replicas play. It is the parent process.
type director struct {
	kill bool

	run     *stage.Run
	ready   []*stage.Member
	playing map[*stage.Member]bool // those that have neither finished nor been killed
	killed  map[int]bool           // the rounds in which a replica was killed
}

// play plays all rounds, and returns the figures.
func (d *director) play(ctx context.Context, run *stage.Run) (*stage.Table, error) {
	d.run, d.playing, d.killed = run, map[*stage.Member]bool{}, map[int]bool{}
	if err := d.prepareRounds(ctx); err != nil {
		return nil, err
	}
	if err := d.startReplicas(); err != nil {
		return nil, err
	}
	if err := d.follow(ctx); err != nil {
		return nil, err
	}
	return d.table(ctx)
}

func (d *director) prepareRounds(ctx context.Context) error {
	for round := 1; round <= rounds; round++ {
		if _, err := d.run.DB.ExecContext(ctx, `INSERT INTO rounds (round) VALUES (?)`, round); err != nil {
			return fmt.Errorf("prepare round %d: %w", round, err)
		}
	}
	return nil
}

func (d *director) startReplicas() error {
	for i, clock := range clocks {
		r := replica{
			Name: fmt.Sprintf("replica %d", i+1), Rounds: rounds, Clock: clock.ahead, Drift: clock.drift,
			Guarded: d.run.Guarded, Backend: d.run.Backend, Namespace: d.run.Namespace, Database: d.run.Database,
			// Nobody dies, so nobody has to take over: one draws, the others skip at once.
			Every: 1200 * time.Millisecond, TTL: 5 * time.Second, Wait: 0,
		}
		if d.kill {
			// The others stand by, for as long as any round can take. The TTL is how long they wait after
			// a death: short enough to watch, long enough for a busy machine to renew in time.
			r.Every, r.TTL, r.Wait, r.Asks = 2500*time.Millisecond, 1500*time.Millisecond, 30*time.Second, true
		}
		member, err := d.run.Crew.Start(r.Name, r)
		if err != nil {
			return err
		}
		d.playing[member] = true
	}
	return nil
}

// follow listens to the replicas until those that live have finished.
func (d *director) follow(ctx context.Context) error {
	for len(d.playing) > 0 {
		select {
		case line := <-d.run.Crew.Lines:
			if err := d.heed(line); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (d *director) heed(line stage.Line) error {
	switch line.Word {
	case wordReady:
		if d.ready = append(d.ready, line.From); len(d.ready) == len(clocks) {
			return d.setTime()
		}
	case wordHalfway:
		return d.decide(line)
	case wordFinished:
		delete(d.playing, line.From)
	case stage.Gone:
		if d.playing[line.From] {
			return fmt.Errorf("%s has ended: %s", line.From.Name, line.Rest)
		}
	}
	return nil
}

// setTime tells all replicas the time of the first round.
func (d *director) setTime() error {
	first := time.Now().Add(400 * time.Millisecond) // later than the fastest clock
	for _, member := range d.ready {
		if err := member.Answer(strconv.FormatInt(first.UnixMilli(), 10)); err != nil {
			return err
		}
	}
	return nil
}

// decide lets a replica that is in mid-draw go on, or kills it: the first in each round.
func (d *director) decide(line stage.Line) error {
	round, err := strconv.Atoi(line.Rest)
	if err != nil {
		return fmt.Errorf("what %s says: %w", line.From.Name, err)
	}
	if d.killed[round] {
		return line.From.Answer("go on")
	}
	d.killed[round] = true
	delete(d.playing, line.From)
	line.From.Kill()
	d.run.Say("director", "round %d: has killed %s in mid-draw (SIGKILL)", round, line.From.Name)
	return nil
}
