package guardwatermill_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	guardwatermill "github.com/seed-1795987d/onerun/middleware/watermill"
)

func TestKeys(t *testing.T) {
	t.Parallel()
	m := message.NewMessage("uuid", message.Payload(`{"order":{"id":7},"double":1,"Double":2,"real":1.5}`))
	m.Metadata.Set("event_id", "e1")
	m.Metadata.Set("empty", "")
	for name, c := range map[string]struct {
		key  guardwatermill.KeyFunc
		want string
		err  string
	}{
		"metadata":         {key: byEvent, want: "e1"},
		"missing metadata": {key: guardwatermill.FromMetadata("other"), err: "metadata other is missing"},
		"empty metadata":   {key: guardwatermill.FromMetadata("empty"), err: "metadata empty is empty"},
		"UUID":             {key: guardwatermill.FromUUID(), want: "uuid"},
		"payload":          {key: guardwatermill.FromPayload(), want: "payload:" + string(m.Payload)},
		"JSON":             {key: guardwatermill.FromJSON("order", "id"), want: "7"},
		"missing JSON":     {key: guardwatermill.FromJSON("customer"), err: "JSON field customer"},
		"twice":            {key: guardwatermill.FromJSON("double"), err: "JSON field double"},
		"no integer":       {key: guardwatermill.FromJSON("real"), err: "JSON field real"},
		"Join, missing":    {key: guardwatermill.Join(byEvent, guardwatermill.FromMetadata("other")), err: "metadata other is missing"},
		"Optional":         {key: guardwatermill.Optional(guardwatermill.FromMetadata("other")), err: guardwatermill.ErrUnguarded.Error()},
		"Optional, found":  {key: guardwatermill.Optional(byEvent), want: "e1"},
	} {
		got, err := c.key(m)
		require.Equal(t, c.want, got, name)
		if c.err == "" {
			require.NoError(t, err, name)
		} else {
			require.ErrorContains(t, err, c.err, name)
		}
	}
	one, err := guardwatermill.Join(byEvent, guardwatermill.FromUUID())(m)
	require.NoError(t, err)
	other, err := guardwatermill.Join(guardwatermill.FromUUID(), byEvent)(m)
	require.NoError(t, err)
	require.NotEqual(t, one, other)
}

// A message without a usable key is not handled and not acknowledged. One that needs none is
// handled without a lease.
func TestHandler_withoutAKey(t *testing.T) {
	t.Parallel()
	empty := func(*message.Message) (string, error) { return "", nil }
	failing := func(*message.Message) (string, error) { return "", errFailed }
	for name, c := range map[string]struct {
		key  guardwatermill.KeyFunc
		want string
	}{
		"missing": {guardwatermill.FromMetadata("other"), "metadata other is missing"},
		"empty":   {empty, "the key is empty"},
		"error":   {failing, "failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStand(t, c.key)
				began := time.Now()
				_, err := s.once(never)(order("a"))
				require.ErrorContains(t, err, c.want)
				require.False(t, guardwatermill.IsPostponed(err), "a poison queue takes it")
				require.Equal(t, time.Second, time.Since(began), "no hot loop with the broker")
				require.Equal(t, "refused", s.last().Result)
				require.ErrorContains(t, s.last().Refused, c.want)
			})
		})
	}
	s := newStand(t, guardwatermill.Optional(guardwatermill.FromMetadata("other")))
	msgs, err := s.once(produce)(order("a"))
	require.NoError(t, err)
	require.Len(t, msgs, 2)
	require.Equal(t, "unguarded", s.last().Result)
	require.Zero(t, s.last().Fence)
}

// All settings that cannot work are in one error, which names them.
func TestNew_refusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	s := newStand(t, byEvent)
	for want, opts := range map[string][]guardwatermill.Option{
		"WithOnce":      {guardwatermill.WithOnce(-1)},
		"WithMaxRecord": {guardwatermill.WithMaxRecord(guard.MaxRecord + 1)},
		"WithWait":      {guardwatermill.WithWait(-1)},
		"WithDelay":     {guardwatermill.WithDelay(2 * time.Hour)},
		"WithGroup":     {guardwatermill.WithGroup("")},
		"WithBusy":      {guardwatermill.WithBusy(guardwatermill.Skip), guardwatermill.WithOnce(time.Hour)},
		"WithLimit":     {guardwatermill.WithOnce(time.Hour), guardwatermill.WithLease(guard.WithLimit(2))},
	} {
		_, err := guardwatermill.New(s.guard, byEvent, opts...)
		var refused *guard.SettingError
		require.ErrorAs(t, err, &refused, want)
		require.Equal(t, want, refused.Setting)
	}
	_, err := guardwatermill.New(s.guard, nil, guardwatermill.WithBusy(9))
	require.ErrorContains(t, err, "key")
	require.ErrorContains(t, err, "WithBusy")
	_, err = guardwatermill.New(nil, byEvent)
	require.ErrorContains(t, err, "guard")
	require.False(t, guardwatermill.IsPostponed(errors.New("another error")))
}
