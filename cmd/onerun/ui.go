package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/seed-1795987d/onerun/inspect"
	"github.com/seed-1795987d/onerun/inspect/web"
)

// uiCommand is "onerun ui".
type uiCommand struct {
	by

	Listen   string `default:"127.0.0.1:7380" help:"Where to serve the page. Port 0 is any."`
	ReadOnly bool   `help:"Show no buttons."`
}

// Help implements kong.HelpProvider.
func (c *uiCommand) Help() string {
	return `The page is for you alone: it can be served on a loopback address only, and answers to no other name
of this host. To share it, put package inspect/web behind your own login.`
}

// Run serves the page until a signal comes.
func (c *uiCommand) Run(g *globals) error {
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	if !isLoopback(host) {
		return fmt.Errorf("--listen: %q is no loopback address, such as 127.0.0.1", host)
	}
	return g.operator(func(ctx context.Context, i *inspect.Inspector) error {
		var opts []web.Option
		if !c.ReadOnly {
			actor := c.by.by().Actor
			opts = append(opts, web.WithActions(func(*http.Request) (string, bool) { return actor, true }))
		}
		page, err := web.New(i, opts...)
		if err != nil {
			return err
		}
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.Listen)
		if err != nil {
			return fmt.Errorf("--listen: %w", err)
		}
		server := &http.Server{Handler: ofThisHost(page), ReadHeaderTimeout: 10 * time.Second}
		fmt.Fprintf(os.Stderr, "onerun: http://%s/ (Ctrl-C ends it)\n", listener.Addr())
		served := make(chan error, 1)
		go func() { served <- server.Serve(listener) }()
		select {
		case err = <-served:
			return err
		case <-ctx.Done():
		}
		closing, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err = server.Shutdown(closing); errors.Is(err, context.DeadlineExceeded) {
			return nil
		}
		return err
	})
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// ofThisHost refuses requests that name another host: a page of another site can point its own name
// at this address.
func ofThisHost(page http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		if !isLoopback(host) {
			http.Error(w, "the page answers to localhost only", http.StatusMisdirectedRequest)
			return
		}
		page.ServeHTTP(w, r)
	})
}
