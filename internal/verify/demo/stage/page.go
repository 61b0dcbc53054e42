package stage

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/inspect"
	"github.com/seed-1795987d/onerun/inspect/web"
)

// loopback is a flag with an address of this host. It implements flag.Value.
type loopback string

func (v *loopback) String() string { return string(*v) }

func (v *loopback) Set(s string) error {
	host, _, err := net.SplitHostPort(s)
	if err != nil {
		return err
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return errors.New("must be an address of this host alone, such as 127.0.0.1:7380")
	}
	*v = loopback(s)
	return nil
}

// showPage serves the page for operators at the address until the run ends. The page is read-only,
// because web.New gets no web.WithActions.
func (r *Run) showPage(address loopback) error {
	locker, disconnect := r.Backend.Connect()
	page, g, err := newPage(locker, r.Namespace)
	if err != nil {
		disconnect()
		return fmt.Errorf("-ui: %w", err)
	}
	listener, err := net.Listen("tcp", string(address))
	if err != nil {
		disconnect()
		return fmt.Errorf("-ui: %w", err)
	}
	server := &http.Server{Handler: page, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	r.hidePage = func() error {
		closed := server.Close()
		err := <-served
		if errors.Is(err, http.ErrServerClosed) {
			err = closed
		}
		ending, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		err = errors.Join(err, g.Close(ending))
		disconnect()
		return err
	}
	fmt.Printf("page for operators: http://%s/\n\n", listener.Addr())
	return nil
}

// newPage returns the page for operators, and the Guard that it uses. A program of your own needs
// these lines, and serves the page behind its login.
func newPage(locker guard.Locker, namespace string) (http.Handler, *guard.Guard, error) {
	g, err := guard.New(locker, guard.WithNamespace(namespace))
	if err != nil {
		return nil, nil, err
	}
	i, err := inspect.New(g)
	if err != nil {
		return nil, nil, err
	}
	page, err := web.New(i)
	return page, g, err
}
