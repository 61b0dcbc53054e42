package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/seed-1795987d/onerun/cmd/onerun/internal/terminal"
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
	return `The page is for you alone. It can be served on a loopback address only, and answers to no other name
of this host. It opens with the URL that is printed, which has a secret: other users of this host
cannot open it. To share the page, put package inspect/web behind your own login.`
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
		opts := []web.Option{web.WithHosts(host, "localhost", "127.0.0.1", "::1")}
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
		secret := newSecret()
		server := &http.Server{Handler: secret.required(page), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
		terminal.Line(os.Stderr, "onerun: http://%s/?%s=%s (Ctrl-C ends it)", listener.Addr(), tokenName, secret.token)
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
