package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/seed-1795987d/onerun/internal/verify/demo/stage"
)

// clocks are what the replicas' clocks are behind that of the third, and what they lose with each
// round. The fourth falls behind until it fires when the draw is over.
var clocks = []struct{ behind, drift time.Duration }{
	{behind: 90 * time.Millisecond},
	{behind: 160 * time.Millisecond},
	{behind: 0},
	{behind: 230 * time.Millisecond, drift: 140 * time.Millisecond},
	{behind: 40 * time.Millisecond},
}

// A director has the replicas play. It is the parent process.
type director struct {
	kill bool
	timetable

	run     *stage.Run
	ready   []*stage.Member
	playing map[*stage.Member]bool // those that have neither finished nor been killed
	killed  map[int]bool           // the rounds in which a replica was killed
}

// play plays all rounds, and returns the figures.
func (d *director) play(ctx context.Context, run *stage.Run) (*stage.Table, error) {
	d.run, d.playing, d.killed = run, map[*stage.Member]bool{}, map[int]bool{}
	if err := d.startReplicas(); err != nil {
		return nil, err
	}
	if err := d.follow(ctx); err != nil {
		return nil, err
	}
	if err := d.sayWhoRanWhat(ctx); err != nil {
		return nil, err
	}
	return d.table(ctx)
}

func (d *director) startReplicas() error {
	// Nobody dies, so nobody has to take over.
	ttl := 5 * time.Second
	d.Every = 2
	if d.kill {
		// The TTL is how long the others wait after a death: short enough to watch, long enough
		// for a busy machine to renew in time.
		ttl = 1500 * time.Millisecond
		d.Every = 5
	}
	for i, clock := range clocks {
		r := replica{
			Name: fmt.Sprintf("replica %d", i+1), Behind: clock.behind, Drift: clock.drift, timetable: d.timetable,
			Guarded: d.run.Guarded, Backend: d.run.Backend, Namespace: d.run.Namespace, Database: d.run.Database,
			TTL: ttl, Asks: d.kill,
		}
		member, err := d.run.Crew.Start(r.Name, &r)
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

// setTime tells all replicas the time of the first round: a second that none of them can miss, and
// before which none is due.
func (d *director) setTime() error {
	d.First = time.Now().Add(1500 * time.Millisecond).Unix()
	d.run.Say("director", "round 1 is due at %s, cron has %q", time.Unix(d.First, 0).Format(time.TimeOnly), d.spec())
	for _, member := range d.ready {
		if err := member.Answer(strconv.FormatInt(d.First, 10)); err != nil {
			return err
		}
	}
	return nil
}

// onRecord is how long it takes at most until a run that goes on is on record.
const onRecord = 1200 * time.Millisecond

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
	time.Sleep(onRecord) // its run is on record by then
	delete(d.playing, line.From)
	line.From.Kill()
	d.run.Say("director", "round %d: has killed %s in mid-draw (SIGKILL)", round, line.From.Name)
	return nil
}
