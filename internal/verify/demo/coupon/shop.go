package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/seed-1795987d/onerun/internal/verify/demo/stage"
)

const (
	coupons = 100
	servers = 3

	// freezeAt is the stock at which a server is frozen between reading and writing it.
	freezeAt = 60
)

// A shop is the parent process: it runs the servers, lets the crowd in, and freezes a server.
type shop struct {
	address string // of -serve, or ""
	trace   traceFlags

	run   *stage.Run
	db    database
	ready []string // the addresses of the servers

	frozen *stage.Member // the server that is frozen, or nil
	fence  uint64        // under which it holds the stock
	froze  bool          // a server has been frozen
	left   int           // in stock, when last looked at
}

// flags adds the shop's own flags.
func (s *shop) flags(set *flag.FlagSet) {
	set.Func("serve", "in place of the crowd, serve at this `host:port` until Ctrl-C", func(address string) error {
		s.address = address
		_, _, err := net.SplitHostPort(address)
		return err
	})
	s.trace.add(set)
}

// check says what is wrong with the flags.
func (s *shop) check() error { return s.trace.check() }

// play keeps the shop open until the crowd has gone, and returns the figures.
func (s *shop) play(ctx context.Context, run *stage.Run) (*stage.Table, error) {
	s.run, s.db = run, database{run.DB}
	if err := s.trace.open(run.Crew); err != nil {
		return nil, err
	}
	if s.address != "" {
		return nil, s.serve(ctx)
	}
	if err := s.open(ctx, servers, "127.0.0.1:0", freezeAt); err != nil {
		return nil, err
	}
	crowd := newCrowd(s.ready)
	run.Say("crowd", "%d users claim %d coupons at once, %d of them twice", users, coupons, eager)
	ctx, cancel := context.WithCancel(ctx)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		crowd.claim(ctx)
	}()
	err := s.attend(ctx, gone)
	cancel()
	<-gone
	if err != nil {
		return nil, err
	}
	run.Say("crowd", "%v", crowd)
	return s.table(context.WithoutCancel(ctx))
}

// serve keeps the shop open until ctx ends. Its one server can be tried by hand.
func (s *shop) serve(ctx context.Context) error {
	if err := s.open(ctx, 1, s.address, 0); err != nil {
		return err
	}
	s.run.Say("shop", "serves at http://%s until Ctrl-C", s.ready[0])
	return s.attend(ctx, ctx.Done())
}

// open fills the stock, starts n servers, and returns when they serve. One that has read freezeAt
// asks before it goes on.
func (s *shop) open(ctx context.Context, n int, address string, freezeAt int) error {
	if err := s.db.fill(ctx, coupons); err != nil {
		return err
	}
	for i := range n {
		name := fmt.Sprintf("server %d", i+1)
		_, err := s.run.Crew.Start(name, server{
			Name: name, Guarded: s.run.Guarded, Address: address, FreezeAt: freezeAt,
			Backend: s.run.Backend, Namespace: s.run.Namespace, Database: s.run.Database,
			Telemetry: s.trace.settings(i, s.address != ""),
		})
		if err != nil {
			return err
		}
	}
	for len(s.ready) < n {
		select {
		case line := <-s.run.Crew.Lines:
			if err := s.heed(line); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// attend sees to the servers until the crowd has gone.
func (s *shop) attend(ctx context.Context, gone <-chan struct{}) error {
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	report := time.NewTicker(500 * time.Millisecond)
	defer report.Stop()
	for {
		var err error
		select {
		case line := <-s.run.Crew.Lines:
			err = s.heed(line)
		case <-look.C:
			err = s.thawInTime(ctx)
		case <-report.C:
			err = s.report(ctx)
		case <-gone:
			return ctx.Err()
		}
		if err != nil {
			return err
		}
	}
}

// heed does what a server's line asks for.
func (s *shop) heed(line stage.Line) error {
	switch line.Word {
	case wordReady:
		s.ready = append(s.ready, line.Rest)
	case wordHolding:
		if s.froze || !stage.CanFreeze {
			return line.From.Answer("go on")
		}
		return s.freeze(line)
	case stage.Gone:
		return fmt.Errorf("%s has ended: %s", line.From.Name, line.Rest)
	}
	return nil
}

// freeze freezes a server that has read the stock and has not written it back yet.
func (s *shop) freeze(line stage.Line) (err error) {
	if s.fence, err = strconv.ParseUint(line.Rest, 10, 64); err != nil {
		return fmt.Errorf("the fence of %s: %w", line.From.Name, err)
	}
	if err := line.From.Freeze(); err != nil {
		return err
	}
	s.frozen, s.froze = line.From, true
	s.run.Say("shop", "has frozen %s (SIGSTOP) when %d were left, under fence %d", line.From.Name, freezeAt, s.fence)
	return nil
}

// thawInTime lets the frozen server go on when the next holder has read the stock. By then, the
// lease of the frozen server has ended.
func (s *shop) thawInTime(ctx context.Context) error {
	if s.frozen == nil {
		return nil
	}
	remaining, fence, err := s.db.stock(ctx)
	if err != nil || fence <= s.fence {
		return err
	}
	s.run.Say("shop", "lets %s go on (SIGCONT): %d are left by now, under fence %d", s.frozen.Name, remaining, fence)
	if err := s.frozen.Answer("go on"); err != nil {
		return err
	}
	err = s.frozen.Thaw()
	s.frozen = nil
	return err
}

// report says what is left, if that has changed.
func (s *shop) report(ctx context.Context) error {
	left, _, err := s.db.stock(ctx)
	if err == nil && left != s.left {
		s.left = left
		s.run.Say("shop", "%d left in stock", left)
	}
	return err
}
