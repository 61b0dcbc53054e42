package stage

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/backend/redlock"
	"github.com/seed-1795987d/onerun/backend/reentrant"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
)

// A Backend is what the guards of a run keep their leases in.
type Backend struct {
	Name    backendName // as -backend has it
	Servers []string    // the addresses of its Redis servers: one, or several for redlock
}

// Connect returns the backend for one process, with connections of its own, which disconnect
// closes. A program of your own needs one of these lines. The options are for redlock.
func (b Backend) Connect(opts ...redlock.Option) (locker guard.Locker, disconnect func()) {
	var nodes []guard.Locker
	var clients []*redis.Client
	for _, addr := range b.Servers {
		client := newClient(addr)
		clients = append(clients, client)
		nodes = append(nodes, single.New(client))
	}
	switch b.Name {
	case "redlock":
		locker = redlock.New(nodes, opts...)
	case "reentrant":
		locker = reentrant.New(clients[0])
	default:
		locker = nodes[0]
	}
	return locker, func() {
		for _, client := range clients {
			_ = client.Close() // fails only if it is closed already
		}
	}
}

// check takes a lease and gives it back: what is wrong with the servers should show before the
// play begins, and not in the children.
func (b Backend) check(ctx context.Context, namespace string) error {
	locker, disconnect := b.Connect()
	defer disconnect()
	g, err := guard.New(locker, guard.WithNamespace(namespace), guard.WithTTL(3*time.Second))
	if err != nil {
		return err
	}
	// Twice: the first goes on with a majority, and what the other servers have said meanwhile,
	// the second knows.
	for try := 0; try < 2 && err == nil; try++ {
		err = g.Do(ctx, "check", func(context.Context) error { return nil })
	}
	return errors.Join(err, g.Close(ctx))
}

// backendName is a flag that names a backend. It implements flag.Value.
type backendName string

func (v *backendName) String() string { return string(*v) }

func (v *backendName) Set(s string) error {
	const known = "must be single, reentrant or redlock"
	switch s {
	case "single", "reentrant", "redlock":
		*v = backendName(s)
		return nil
	case "memory":
		return errors.New("each process would have a memory of its own, and keep out none of the others: " + known)
	}
	return errors.New(known)
}

// addresses is a flag that lists servers. It implements flag.Value.
type addresses []string

func (v *addresses) String() string { return strings.Join(*v, ",") }

func (v *addresses) Set(s string) error {
	*v = strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
	return nil
}

// suit returns an error if there are addresses, and not as many as the backend needs.
func (v addresses) suit(backend backendName) error {
	switch {
	case len(v) == 0:
	case backend == "redlock" && len(v) < 3:
		return fmt.Errorf("-redis %s: -backend redlock takes three addresses at least, with commas between them", &v)
	case backend != "redlock" && len(v) > 1:
		return fmt.Errorf("-redis %s: -backend %s takes one address", &v, backend)
	}
	return nil
}
