package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/seed-1795987d/onerun/examples/internal/stage"
	"github.com/seed-1795987d/onerun/guard"
)

const (
	partnerKey = "partner"
	// partnerTakes is how long the partner takes to look at a user.
	partnerTakes = 5 * time.Millisecond
	mostReaders  = 100
)

// sharingFlags are the two modes in which several hold a key at a time.
type sharingFlags struct {
	partner int // at most so many calls to the partner at a time; 0 for no partner
	readers int // how many look at the stock all the time
}

func (f *sharingFlags) add(set *flag.FlagSet) {
	set.IntVar(&f.partner, "partner", 0, "have each user checked by a partner, which takes `n` calls at a time from all servers together (guard.WithLimit)")
	set.IntVar(&f.readers, "readers", 0, "have `n` readers look at the stock and the claims meanwhile (guard.WithShared)")
}

func (f *sharingFlags) check() error {
	switch {
	case f.partner < 0 || f.partner > desks*servers:
		return fmt.Errorf("-partner must be from 0 to %d, which is how many users all servers see to at a time", desks*servers)
	case f.readers < 0 || f.readers > mostReaders:
		return fmt.Errorf("-readers must be from 0 to %d", mostReaders)
	}
	return nil
}

// checkSharing returns an error if the backend cannot do what the flags ask for.
func (s *server) checkSharing() (err error) {
	nothing := func(context.Context) error { return nil }
	if s.Partner != "" {
		_, err = s.guard.Wrap(partnerKey, nothing, guard.WithLimit(s.PartnerTakes))
	}
	if s.Readers {
		_, shared := s.guard.Wrap(stockKey, nothing, guard.WithShared())
		err = errors.Join(err, shared)
	}
	return err
}

// checkUser asks the partner about the user: not more than so many at a time, in all servers.
func (s *server) checkUser(ctx context.Context, o order) error {
	if s.Partner == "" {
		return nil
	}
	call := func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Partner+"/"+o.user, nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			return fmt.Errorf("ask the partner: %w", err)
		}
		return response.Body.Close()
	}
	if !s.Guarded {
		return call(ctx)
	}
	return s.guard.Do(ctx, partnerKey, call, guard.WithLimit(s.PartnerTakes), guard.WithWait(2*time.Second), guard.WithName("partner"))
}

// look answers with what is left and what was claimed. It reads them one after the other. A sale in
// between would be in one of them only, so it reads the stock together with other readers, while
// nobody sells.
func (s *server) look(w http.ResponseWriter, r *http.Request) {
	read := func(ctx context.Context) error {
		left, _, err := s.db.stock(ctx)
		if err != nil {
			return err
		}
		time.Sleep(thinking)
		books, err := s.db.books(ctx)
		if err == nil {
			_, err = fmt.Fprintln(w, left+len(books.claims))
		}
		return err
	}
	var err error
	if s.Guarded {
		err = s.guard.Do(r.Context(), stockKey, read, guard.WithShared(), guard.WithWait(2*time.Second), guard.WithName("look"))
	} else {
		err = read(r.Context())
	}
	if err != nil {
		refuse(w, err)
	}
}

// A partner is somebody else's API, which refuses a call if there are too many at a time.
type partner struct {
	takes  int
	server *http.Server

	mu                        sync.Mutex
	now, most, calls, refused int
}

func startPartner(takes int) (*partner, string, error) {
	p := &partner{takes: takes}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", fmt.Errorf("start the partner: %w", err)
	}
	p.server = &http.Server{Handler: p, ReadHeaderTimeout: time.Second}
	go func() { _ = p.server.Serve(listener) }() // until it is closed
	return p, listener.Addr().String(), nil
}

// ServeHTTP implements http.Handler.
func (p *partner) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	p.calls++
	p.now++
	p.most = max(p.most, p.now)
	busy := p.now > p.takes
	if busy {
		p.refused++
	}
	p.mu.Unlock()
	time.Sleep(partnerTakes)
	if busy {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now--
}

func (p *partner) add(table *stage.Table) {
	p.mu.Lock()
	defer p.mu.Unlock()
	table.AtLeast("calls to the partner", coupons, p.calls, fmt.Sprintf("up to %d at a time", p.most))
	table.Exactly("calls that the partner refused", 0, p.refused, "")
}

// readers look at the stock for as long as the crowd is there.
type readers struct {
	mu           sync.Mutex
	looks, wrong int
}

func (r *readers) look(ctx context.Context, n int, servers []string) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: n}, Timeout: 5 * time.Second}
	defer client.CloseIdleConnections()
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			for ctx.Err() == nil {
				r.lookOnce(ctx, client, servers[i%len(servers)])
				select {
				case <-time.After(20 * time.Millisecond):
				case <-ctx.Done():
				}
			}
		})
	}
	all.Wait()
}

func (r *readers) lookOnce(ctx context.Context, client *http.Client, server string) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+server+"/stock", nil)
	if err != nil {
		panic(err) // the address is ours
	}
	response, err := client.Do(request)
	if err != nil {
		return // it is frozen, or has ended
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	var sum int
	if _, wrong := fmt.Sscan(string(text), &sum); errors.Join(err, wrong) != nil || response.StatusCode != http.StatusOK {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.looks++
	if sum != coupons {
		r.wrong++
	}
}

func (r *readers) add(table *stage.Table) {
	r.mu.Lock()
	defer r.mu.Unlock()
	table.AtLeast("looks at the stock", 1, r.looks, "")
	table.Exactly("looks that found a sale half done", 0, r.wrong, "")
}
