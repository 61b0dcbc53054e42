package guardjetstream_test

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/adaptertest"
	guardjetstream "github.com/seed-1795987d/onerun/middleware/jetstream"
)

func TestKeys_areThoseOfThePage(t *testing.T) {
	t.Parallel()
	store := adaptertest.NewKeyStore()
	m, err := guardjetstream.New(store.NewGuard(t), nil, guardjetstream.WithConsumer(explicit))
	require.NoError(t, err)
	m(succeed)(&message{id: "a"})
	store.Check(t, "../../docs/jetstream.md", "guardjetstream", map[string]string{"HASH": `[\w-]+`})
}

// A stream that is deleted and made again counts from 1. Its messages are new ones.
func TestFromMessage_tellsMessagesApart(t *testing.T) {
	t.Parallel()
	key, seen := guardjetstream.FromMessage(), map[string]bool{}
	stored := time.Date(2026, 11, 28, 5, 0, 0, 1, time.UTC)
	for _, m := range []*message{
		{sequence: 1, stored: stored}, {sequence: 2, stored: stored}, {sequence: 1, stored: stored.Add(1)},
		{id: "1"}, {id: "2"}, {id: "sequence 1 of " + "1"},
	} {
		k, err := key(m)
		require.NoError(t, err)
		require.False(t, seen[k], k)
		seen[k] = true
	}
	one, err := key(&message{sequence: 1, stored: stored, delivered: 1})
	require.NoError(t, err)
	two, err := key(&message{sequence: 1, stored: stored, delivered: 2})
	require.NoError(t, err)
	require.Equal(t, one, two)
	one, err = key(&message{id: "a", sequence: 1, stored: stored})
	require.NoError(t, err)
	two, err = key(&message{id: "a", sequence: 7, stored: stored.Add(time.Hour)})
	require.NoError(t, err)
	require.Equal(t, one, two, "the publisher has sent it again")
}

func TestFromJSON_takesAField(t *testing.T) {
	t.Parallel()
	k, err := guardjetstream.FromJSON("order", "customer")(&message{data: `{"order":{"customer":42}}`})
	require.NoError(t, err)
	require.Equal(t, "42", k)
	_, err = guardjetstream.FromJSON("order", "customer")(&message{subject: "orders.new", data: `{"order":{}}`})
	require.EqualError(t, err, `guardjetstream: message on "orders.new": field "order.customer" is missing`)
}

// A message without a key comes back, so that nothing is lost, and hooks receive why.
func TestKey_thatIsMissing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		key  guardjetstream.KeyFunc
		want string
	}{
		"empty":     {func(jetstream.Msg) (string, error) { return "", nil }, "nak 1s"},
		"missing":   {guardjetstream.FromJSON("order"), "nak 1s"},
		"terminate": {func(jetstream.Msg) (string, error) { return "", guardjetstream.ErrTerminate }, "term guardjetstream: the message is terminated"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStand(t, explicit)
			m, err := guardjetstream.New(s.guard, c.key, guardjetstream.WithConsumer(explicit))
			require.NoError(t, err)
			msg := &message{subject: "orders.new", data: "{}"}
			m(never)(msg)
			require.Equal(t, []string{c.want}, msg.answers)
			require.Equal(t, "refused", s.last().Result)
			require.Error(t, s.last().Refused)
			var missing *guardjetstream.KeyError
			require.Equal(t, name != "terminate", errors.As(s.last().Err, &missing))
		})
	}
}

func TestNew_namesEachSettingThatCannotWork(t *testing.T) {
	t.Parallel()
	g := newStand(t, explicit).guard
	all := explicit
	all.AckPolicy = jetstream.AckAllPolicy
	for setting, opt := range map[string]guardjetstream.Option{
		"WithConsumer":   guardjetstream.WithConsumer(all),
		"WithBusy":       guardjetstream.WithBusy(9),
		"WithDelay":      guardjetstream.WithDelay(-1),
		"WithRetryDelay": guardjetstream.WithRetryDelay(nil),
		"WithWait":       guardjetstream.WithWait(-1),
		"WithOnce":       guardjetstream.WithOnce(0),
		"WithOwner":      guardjetstream.WithLease(guard.WithOwner("me")),
		"Option":         nil,
	} {
		_, err := guardjetstream.New(g, nil, guardjetstream.WithConsumer(explicit), opt)
		var refused *guard.SettingError
		require.ErrorAs(t, err, &refused, setting)
		require.Equal(t, setting, refused.Setting)
	}
	_, err := guardjetstream.New(g, nil)
	require.ErrorContains(t, err, "WithConsumer")
	_, err = guardjetstream.New(nil, nil, guardjetstream.WithConsumer(explicit))
	require.ErrorContains(t, err, "guard")
	skip := []guardjetstream.Option{guardjetstream.WithConsumer(explicit), guardjetstream.WithBusy(guardjetstream.Skip)}
	_, err = guardjetstream.New(g, nil, skip...)
	require.ErrorContains(t, err, "WithBusy", "a delivery of a message that is being handled would end it")
	_, err = guardjetstream.New(g, guardjetstream.FromJSON("customer"), append(skip, guardjetstream.WithOnce(time.Hour))...)
	require.ErrorContains(t, err, "WithBusy")
	_, err = guardjetstream.New(g, nil, guardjetstream.WithDelay(1<<62))
	require.ErrorContains(t, err, "WithDelay")
	require.Panics(t, func() { newStand(t, explicit).m(nil) })
}
