package guardjetstream_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
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
	require.EqualError(t, err, `guardjetstream: message on "orders.new": JSON field order.customer of the data is missing`)
}

func TestFromHeader_takesOneValue(t *testing.T) {
	t.Parallel()
	key := guardjetstream.FromHeader("Order-Id")
	k, err := key(&message{header: nats.Header{"Order-Id": {"a"}, "order-id": {"b"}}})
	require.NoError(t, err)
	require.Equal(t, "a", k)
	for reason, values := range map[string][]string{"is missing": nil, "is empty": {""}, "is there more than once": {"a", "a"}} {
		_, err := key(&message{subject: "orders.new", header: nats.Header{"Order-Id": values}})
		require.EqualError(t, err, `guardjetstream: message on "orders.new": header Order-Id `+reason)
	}
	require.Panics(t, func() { guardjetstream.FromHeader(" ") })
}

func TestJoin_tellsListsOfPartsApart(t *testing.T) {
	t.Parallel()
	key := guardjetstream.Join(guardjetstream.FromHeader("A"), guardjetstream.FromPayload())
	one, err := key(&message{header: nats.Header{"A": {"1"}}, data: "2"})
	require.NoError(t, err)
	two, err := key(&message{header: nats.Header{"A": {"1payload:"}}, data: "2"})
	require.NoError(t, err)
	require.NotEqual(t, one, two)
	_, err = key(&message{})
	require.ErrorContains(t, err, "header A is missing")
	require.Panics(t, func() { guardjetstream.Join(key, nil) })
}

// A message that needs no lease is handled and acknowledged as the others.
func TestOptional_isHandledWithoutALease(t *testing.T) {
	t.Parallel()
	s := newStandOf(t, guardjetstream.Optional(guardjetstream.FromHeader("A")), explicit, guardjetstream.WithOnce(time.Hour))
	for range 2 {
		for _, failure := range []error{nil, errFailed} {
			m := &message{}
			s.m(func(ctx context.Context, _ jetstream.Msg) error {
				require.Zero(t, guard.Fence(ctx))
				require.Empty(t, guardjetstream.Key(ctx))
				return failure
			})(m)
			require.Equal(t, []string{map[bool]string{true: "ack", false: "nak 1s"}[failure == nil]}, m.answers)
			require.Positive(t, m.inProgress())
			require.Equal(t, "unguarded", s.last().Result)
			require.Equal(t, failure, s.last().Err)
		}
	}
	s.m(func(ctx context.Context, _ jetstream.Msg) error {
		require.Equal(t, "1", guardjetstream.Key(ctx))
		return nil
	})(&message{header: nats.Header{"A": {"1"}}})
	require.Equal(t, "ran", s.last().Result)
	require.Panics(t, func() { guardjetstream.Optional(nil) })
}

// Consumers of a group do the same work, so a marker of one is found by the other.
func TestWithGroup_sharesKeys(t *testing.T) {
	t.Parallel()
	for _, group := range []string{"", "charge"} {
		s := newStand(t, explicit)
		handle := func(consumer string) {
			opts := []guardjetstream.Option{guardjetstream.WithConsumer(explicit), guardjetstream.WithOnce(time.Hour)}
			if group != "" {
				opts = append(opts, guardjetstream.WithGroup(group))
			}
			m, err := guardjetstream.New(s.guard, guardjetstream.FromHeader("A"), opts...)
			require.NoError(t, err)
			m(succeed)(&message{header: nats.Header{"A": {"1"}}, consumer: consumer})
		}
		handle("billing")
		handle("audit")
		require.Equal(t, map[string]string{"": "ran", "charge": "done"}[group], s.last().Result)
	}
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
		"terminate": {func(jetstream.Msg) (string, error) { return "", guardjetstream.ErrTerminate }, `term guardjetstream: key of a message on "orders.new": guardjetstream: the message is terminated`},
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
		"WithGroup":      guardjetstream.WithGroup(""),
		"WithWait":       guardjetstream.WithWait(-1),
		"WithOnce":       guardjetstream.WithOnce(-1),
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
