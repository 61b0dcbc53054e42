package redisstore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard/driver"
)

func TestToGrant_readsWhatScriptsAnswer(t *testing.T) {
	for _, c := range []struct {
		answer any
		grant  driver.Answer
	}{
		{int64(7), driver.Answer{State: driver.Granted, Fence: 7}},
		{int64(-7), driver.Answer{State: driver.Granted, Fence: 7, Held: true}},
		{[]any{int64(1), int64(7), int64(9), int64(0)}, driver.Answer{State: driver.Granted, Fence: 7, Clock: 9}},
		{[]any{int64(1), int64(7), int64(0), int64(5)}, driver.Answer{State: driver.Granted, Fence: 7, Reserved: 5}},
		{[]any{int64(1), int64(7), int64(9), int64(5)}, driver.Answer{State: driver.Granted, Fence: 7, Clock: 9, Reserved: 5}},
		{[]any{int64(1), int64(-7), int64(9), int64(0)}, driver.Answer{State: driver.Granted, Fence: 7, Clock: 9, Held: true}},
		{[]any{int64(0), int64(1000), "web-1", "id"}, driver.Answer{State: driver.Busy, Left: time.Second, Label: "web-1", Holder: "id"}},
		{[]any{int64(0), int64(1000), "", "id", int64(3), int64(1)}, driver.Answer{State: driver.Busy, Left: time.Second, Holder: "id", Ahead: 3, Reason: driver.OtherNotified}},
		{[]any{int64(1), int64(7), int64(0), int64(0), int64(2)}, driver.Answer{State: driver.Granted, Fence: 7, Seat: 2}},
		{[]any{int64(1), int64(-7), int64(9), int64(0), int64(2)}, driver.Answer{State: driver.Granted, Fence: 7, Clock: 9, Held: true, Seat: 2}},
		{[]any{int64(0), int64(1000), "", "id", int64(0), int64(0), int64(1)}, driver.Answer{State: driver.Busy, Left: time.Second, Holder: "id", Reason: driver.HeldForClaim}},
		{[]any{int64(0), int64(1000), "", "id", int64(3), int64(1), int64(0)}, driver.Answer{State: driver.Busy, Left: time.Second, Holder: "id", Ahead: 3, Reason: driver.OtherNotified}},
		{[]any{int64(2), int64(1000), "record", int64(0), "web-1"}, driver.Answer{State: driver.Done, Left: time.Second, Record: []byte("record"), Label: "web-1"}},
		{[]any{int64(2), int64(1000), "Did 0\nrecord", int64(6), ""}, driver.Answer{State: driver.Done, Left: time.Second, Record: []byte("record")}},
		{[]any{int64(2), int64(1000), "", int64(4), ""}, driver.Answer{State: driver.Done, Left: time.Second, Record: []byte{}}},
	} {
		grant, ok := toGrant(c.answer)
		require.True(t, ok, "%v", c.answer)
		require.Equal(t, c.grant, grant)
	}
}

func TestToGrant_refusesWhatTheyDoNot(t *testing.T) {
	for _, answer := range []any{
		nil, "OK", int64(0),
		[]any{},
		[]any{int64(1), int64(7)},
		[]any{int64(1), int64(7), int64(9)},
		[]any{int64(1), int64(0), int64(9), int64(5)},
		[]any{int64(1), int64(7), "9", int64(5)},
		[]any{int64(1), int64(7), int64(9), "5"},
		[]any{int64(1), int64(7), int64(-9), int64(5)},
		[]any{int64(1), int64(7), int64(9), int64(-5)},
		[]any{int64(1), int64(7), int64(9), int64(5), int64(0)},
		[]any{int64(1), int64(7), int64(9), int64(5), "5"},
		[]any{int64(1), int64(7), int64(9), int64(5), int64(5), int64(5)},
		[]any{int64(0), int64(1000), "", "id", int64(3), int64(1), "0"},
		[]any{int64(0), int64(1000), "", "id", int64(3), int64(1), int64(0), int64(1)},
		[]any{"1", int64(7), int64(9)},
		[]any{int64(0), "1000", "web-1", "id"},
		[]any{int64(0), int64(1000), "web-1"},
		[]any{int64(0), int64(1000), "web-1", int64(1)},
		[]any{int64(2), int64(1000), "record"},
		[]any{int64(2), int64(1000), int64(5), int64(0), ""},
		[]any{int64(2), int64(1000), "record", "4", ""},
		[]any{int64(2), int64(1000), "record", int64(-1), ""},
		[]any{int64(2), int64(1000), "record", int64(0), int64(1)},
		[]any{int64(0), int64(1000), "", "id", int64(3)},
		[]any{int64(0), int64(1000), "", "id", "3", int64(1)},
		[]any{int64(0), int64(1000), "", "id", int64(3), "1"},
		[]any{int64(0), int64(1000), "", "id", int64(3), int64(1), "1"},
		[]any{int64(3), int64(1000), "record"},
	} {
		_, ok := toGrant(answer)
		require.False(t, ok, "%v", answer)
	}
}
