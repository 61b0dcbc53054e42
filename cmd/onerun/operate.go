package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"os/user"
	"syscall"
	"time"

	"github.com/seed-1795987d/onerun/cmd/onerun/internal/terminal"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/inspect"
)

// exitNothing is the exit code of a command that found nothing to change.
const exitNothing = 1

// operator calls f with an Inspector of the servers, and a context that ends with a signal.
func (g *globals) operator(f func(ctx context.Context, i *inspect.Inspector) error) error {
	servers, err := g.open()
	if err != nil {
		return err
	}
	defer func() { _ = servers.Close() }()
	locks, err := guard.New(servers.Locker, guard.WithoutNamespace(), guard.WithNamespace(g.Namespace))
	if err != nil {
		return asFlag(err)
	}
	i, err := inspect.New(locks)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err = f(ctx, i)
	closing, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = locks.Close(closing)
	return asFlag(err)
}

// oneKey is the argument of commands about a key.
type oneKey struct {
	Key string `arg:"" help:"The key."`
}

// about returns the key.
func (k oneKey) about() string { return k.Key }

// by are the flags of commands that change something.
type by struct {
	Actor string `name:"by" env:"ONERUN_ACTOR" placeholder:"NAME" help:"Who asks for the change. Default: user and host."`
	Why   string `placeholder:"TEXT" help:"Why. Others see it, and it is recorded."`
}

func (b by) by() inspect.By {
	if b.Actor != "" {
		return inspect.By{Actor: b.Actor, Reason: b.Why}
	}
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return inspect.By{Actor: fmt.Sprintf("%.40s@%.59s", name, host), Reason: b.Why}
}

// print prints a value as JSON, or by a function.
func (g *globals) print(value any, text func(w *terminal.Page)) error {
	if g.JSON {
		return terminal.JSON(os.Stdout, "  ", value)
	}
	w := terminal.NewPage(os.Stdout)
	text(w)
	return w.Flush()
}

// instant is a time in messages.
func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}

// span is a duration in messages. It is "for ever" if it is negative.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "for ever"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	default:
		return d.Round(time.Second).String()
	}
}

// seconds is a duration in JSON: a number of seconds, or null if it does not end.
type seconds time.Duration

// MarshalJSON implements json.Marshaler.
func (s seconds) MarshalJSON() ([]byte, error) {
	if s < 0 {
		return []byte("null"), nil
	}
	return json.Marshal(time.Duration(s).Round(time.Millisecond).Seconds())
}
