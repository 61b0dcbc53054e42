package idempotent_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
	"github.com/seed-1795987d/onerun/middleware/internal/idempotent"
)

// A site is a middleware on a transport in memory: its answers are texts. Tests run it in a bubble
// of synctest.
type site struct {
	t     *testing.T
	guard *guard.Guard
	core  *idempotent.Core

	mu   sync.Mutex
	runs int
}

// newSite returns a site whose Guard is closed at the end of the test.
func newSite(t *testing.T, store driver.Locker, opts ...idempotency.Option) *site {
	t.Helper()
	g, err := guard.New(store, guard.WithNamespace("test"), guard.WithTTL(time.Minute))
	require.NoError(t, err)
	t.Cleanup(func() { _ = g.Close(context.Background()) })
	return siteOf(t, g, opts...)
}

func siteOf(t *testing.T, g *guard.Guard, opts ...idempotency.Option) *site {
	t.Helper()
	s := idempotent.Defaults(idempotent.HTTP)
	idempotent.Apply[func(*idempotent.Settings)](&s, &s, opts)
	s.Check(g, true, !s.Global)
	core, err := idempotent.New(g, &s)
	require.NoError(t, err)
	return &site{t: t, guard: g, core: core}
}

// A handler answers with a text, or fails.
type handler func(ctx context.Context) (string, error)

// A call is one call of a site.
type call struct {
	idempotent.Call
	site    *site
	ctx     context.Context
	request request
	answer  string // of the handler, or replayed
}

// Handle implements idempotent.Transport.
func (c *call) Handle(ctx context.Context) idempotent.Left {
	answer, err := c.run(ctx)
	left := idempotent.Left{Answer: &idempotent.Answer{Body: []byte(answer)}, Failed: err != nil}
	left.Keep = c.Keep(c.ctx, idempotent.Ending{Replayable: len(answer) <= c.Core.Records}, func() bool { return err == nil })
	return left
}

// run runs the handler.
func (c *call) run(ctx context.Context) (answer string, err error) {
	c.site.mu.Lock()
	c.site.runs++
	c.site.mu.Unlock()
	c.answer, err = c.request.handler(ctx)
	return c.answer, err
}

// Identify implements idempotent.Transport.
func (c *call) Identify() (idempotency.Result, error) {
	r := c.request
	c.Scope, c.Key = r.scope, c.Core.Stored(r.scope, r.key, "test")
	if r.print != "" {
		c.Fingerprint = []byte((r.print + "                                ")[:idempotent.FingerprintSize])
	}
	return "", nil
}

// Bare implements idempotent.Transport.
func (c *call) Bare(ctx context.Context) { _, _ = c.run(ctx) }

// The answer of a call is where tests look for it.
func (c *call) Pass()                                           {}
func (c *call) Send()                                           {}
func (c *call) Discard() bool                                   { return true }
func (c *call) Replay()                                         {}
func (c *call) Refuse(idempotency.Result, time.Duration, error) {}

// Read implements idempotent.Transport.
func (c *call) Read(a *idempotent.Answer) error {
	c.answer = string(a.Body)
	return nil
}

// A request is what a test sends to a site. The zero request has the key "" of the scope "".
type request struct {
	scope, key, print string
	handler           handler // nil answers "answer"
}

// send makes a call, and returns it when it has ended.
func (s *site) send(ctx context.Context, r request) *call {
	if r.handler == nil {
		r.handler = func(context.Context) (string, error) { return "answer", nil }
	}
	c := &call{site: s, ctx: ctx, request: r}
	c.Core, c.Transport = s.core, c
	c.Serve(ctx)
	return c
}

// start is send in a goroutine. The channel gets the call when it has ended.
func (s *site) start(ctx context.Context, r request) <-chan *call {
	ended := make(chan *call, 1)
	go func() { ended <- s.send(ctx, r) }()
	return ended
}

// until returns a handler that answers when the channel is closed.
func until(end <-chan struct{}) handler {
	return func(context.Context) (string, error) {
		<-end
		return "answer", nil
	}
}

var errHandler = errors.New("the handler has failed")

func fails(context.Context) (string, error) { return "failure", errHandler }

// chooses returns a handler that chooses what is kept, and has err.
func chooses(err error, keeps ...idempotency.Keep) handler {
	return func(ctx context.Context) (string, error) {
		for _, keep := range keeps {
			idempotency.SetKeep(ctx, keep)
		}
		return "answer", err
	}
}

func newStore() driver.Locker { return memory.New() }
