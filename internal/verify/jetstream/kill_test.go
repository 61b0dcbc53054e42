package jetstream_test

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/processtest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	guardjetstream "github.com/seed-1795987d/onerun/middleware/jetstream"
)

// victimEnv makes the test binary a consumer that is killed: its value says where.
const victimEnv = "ONERUN_JETSTREAM_VICTIM"

const (
	inHandler = "in the handler"
	beforeAck = "after the marker"
)

func TestMain(m *testing.M) {
	if os.Getenv(victimEnv) != "" {
		if err := consumeUntilKilled(os.Getenv(victimEnv), os.Getenv("NATS"), os.Getenv("REDIS")); err != nil {
			fmt.Println("fails:", err)
		}
		return
	}
	os.Exit(m.Run())
}

func die() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL); select {} }

// A dying message kills the process in the place of its acknowledgement.
type dying struct{ jetstream.Msg }

func (dying) DoubleAck(context.Context) error { die(); return nil }

func consumeUntilKilled(where, natsURL, redisAddr string) error {
	nc, err := nats.Connect(natsURL)
	if err != nil {
		return err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	c, err := js.Consumer(context.Background(), "S", "c")
	if err != nil {
		return err
	}
	handle, err := killGuard(redisAddr, c, func(context.Context, jetstream.Msg) error {
		fmt.Println("handled")
		if where == inHandler {
			die()
		}
		return nil
	}, guard.WithTTL(time.Second)) // its lease ends soon after it
	if err != nil {
		return err
	}
	if _, err = c.Consume(func(msg jetstream.Msg) { handle(dying{msg}) }); err != nil {
		return err
	}
	select {}
}

// killGuard returns the handler of a process.
func killGuard(redisAddr string, c jetstream.Consumer, h guardjetstream.Handler, opts ...guard.Option) (jetstream.MessageHandler, error) {
	g, err := guard.New(single.New(redis.NewClient(&redis.Options{Addr: redisAddr})), append(opts, guard.WithNamespace("x"))...)
	if err != nil {
		return nil, err
	}
	m, err := guardjetstream.New(g, nil, guardjetstream.WithConsumer(c), guardjetstream.WithOnce(time.Hour))
	if err != nil {
		return nil, err
	}
	return m(h), nil
}

// A consumer is killed between its handler and the acknowledgement. Before the marker is in the
// store, the message is handled again. After that, its next delivery is only acknowledged.
func TestKill_losesNoMessage(t *testing.T) {
	t.Parallel()
	for where, want := range map[string]string{inHandler: "ran", beforeAck: "done"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			st, leases := newStand(t, time.Second), redistest.Start(t)
			victim := processtest.Self(t, victimEnv+"="+where, "NATS="+st.s.ClientURL(), "REDIS="+leases.Addr())
			st.pub()
			victim.Says("handled")
			<-victim.Done()

			var results []string // one goroutine calls the handler
			handled := make(chan bool, 9)
			handle, err := killGuard(leases.Addr(), st.c, func(context.Context, jetstream.Msg) error {
				handled <- true
				return nil
			}, guard.WithHook(guard.Hook{Outcome: func(_ context.Context, o guard.Outcome) {
				if o.Result != "postponed" { // until the lease of the process ends
					results = append(results, o.Result)
				}
			}}))
			require.NoError(t, err)
			cc, err := st.c.Consume(handle)
			require.NoError(t, err)
			st.idle()
			cc.Stop()
			<-cc.Closed()
			require.Equal(t, want, results[0])
			for _, again := range results[1:] { // this process has stood still for an AckWait
				require.Equal(t, "done", again)
			}
			require.Len(t, handled, map[string]int{inHandler: 1}[where])
		})
	}
}
